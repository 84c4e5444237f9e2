#include "planner/redistribute/planning/plan_redistribution.h"

#include "common/base/check.h"
#include "common/base/error_place.h"
#include "common/base/status_macros.h"
#include "common/mesh/reduction.h"
#include "common/plan/course_tables.h"
#include "common/plan/proof.h"
#include "planner/redistribute/baselines/baselines.h"
#include "planner/redistribute/derivation_proof.h"
#include "planner/redistribute/mesh_cost.h"
#include "planner/redistribute/planning/common_axes.h"
#include "planner/redistribute/planning/course_draft.h"
#include "planner/redistribute/planning/course_figures.h"
#include "planner/redistribute/planning/lowering.h"
#include "planner/redistribute/redistribution_search.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// The most of a chunk in a step of a course: an instance has little, and others overlap with it.
// And in one move inside a host, where no network is to be kept busy by small ones. Both by
// measurement (docs/benchmarks/collectives.md).
constexpr int64_t kStepChunkBytes = int64_t{1} << 20;
constexpr int64_t kHostChunkBytes = int64_t{256} << 10;

// On GPUs, where steps follow each other and each costs calls of NCCL and looks at the GPU:
// assumed, as nothing of it was measured.
constexpr CourseSizes kGpuSizes = {.array_bytes = int64_t{256} << 20, .buffers = 1};

// Arrays are made no smaller than these to stay within a limit of memory.
constexpr int64_t kArrayBytesMin = int64_t{64} << 10;

absl::StatusOr<std::optional<RedistributionBaseline>> ParseMethod(const std::string& name) {
  if (name.empty()) return std::nullopt;
  for (const RedistributionBaseline method : kRedistributionBaselines) {
    if (name == RedistributionBaselineName(method)) return method;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("method: expected that of a baseline, found \"", name, "\""));
}

// Parts of the common axes in the place of a mesh's axes.
absl::StatusOr<RedistributionEnd> EndOn(const Placement& placement,
                                        const std::vector<std::vector<SubAxis>>& parts_of_axis,
                                        const std::vector<std::string>& partial,
                                        PartialReduction reduction) {
  ASSIGN_OR_RETURN(const RedistributionEnd of_mesh,
                   EndOf(placement.layout, placement.mesh.axes(), partial, reduction));
  RedistributionEnd end;
  for (const std::vector<SubAxis>& axes : of_mesh.dimensions) {
    std::vector<SubAxis>& dimension = end.dimensions.emplace_back();
    for (const SubAxis& axis : axes) {
      const std::vector<SubAxis>& parts = parts_of_axis[axis.axis];
      dimension.insert(dimension.end(), parts.begin(), parts.end());
    }
  }
  for (const PartialAxis& axis : of_mesh.partial) {
    for (const SubAxis& part : parts_of_axis[axis.part.axis]) {
      end.partial.push_back({part, reduction});
    }
  }
  return end;
}

class RedistributionPlanner {
 public:
  RedistributionPlanner(const ReshardRequest& request, const std::optional<CourseSizes>& sizes,
                        CancelCheck cancelled)
      : request_(request), tensors_(*request.tensors), sizes_(sizes), cancelled_(cancelled) {}

  absl::StatusOr<Plan> Make() {
    RETURN_IF_ERROR(ReadNames());
    RETURN_IF_ERROR(CheckDevices());
    for (int32_t group = 0; group < std::ssize(tensors_.groups()); ++group) {
      if (tensors_.tensors_in_group(group) == 0) continue;
      RETURN_IF_ERROR(At(tensors_.NameOf(group), RouteGroup(group)));
      RETURN_IF_ERROR(CheckWanted(cancelled_));
    }
    for (int32_t t = 0; t < std::ssize(tensors_.group_of_tensor()); ++t) {
      const int32_t group = tensors_.group_of_tensor()[t];
      if (group >= 0) routes_.at(group).tensors.push_back(t);
    }
    // In one move of the whole, slots with summands would count as such with the same values.
    const bool is_one_move = !has_partial() && std::ranges::all_of(routes_, [](const auto& entry) {
      return entry.second.lowering->step_count() == 1;
    });
    return is_one_move ? PlanOneMove() : PlanCourses();
  }

 private:
  absl::Status ReadNames() {
    const RedistributionInputs& inputs = request_.redistribution;
    if (!inputs.reduction.empty()) {
      ASSIGN_OR_RETURN(reduction_, ParsePartialReduction(inputs.reduction));
    }
    ASSIGN_OR_RETURN(method_, ParseMethod(inputs.method));
    if (inputs.objective.empty() || inputs.objective == "time") return absl::OkStatus();
    if (inputs.objective != "bytes") {
      return absl::InvalidArgumentError(
          absl::StrCat("objective: expected time or bytes, found \"", inputs.objective, "\""));
    }
    objective_ = RedistributionObjective::kBytes;
    return absl::OkStatus();
  }

  absl::Status CheckDevices() {
    const auto is_gpu = [this](const DeviceId& device) {
      return request_.topology.FindGpu(device) != nullptr;
    };
    const std::vector<DeviceId>& devices = tensors_.devices();
    const auto gpu = std::ranges::find_if(devices, is_gpu);
    const auto other = std::ranges::find_if_not(devices, is_gpu);
    are_gpus_ = gpu != devices.end();
    if (!are_gpus_ || other == devices.end()) return absl::OkStatus();
    return absl::UnimplementedError(
        absl::StrCat("strategy redistribute: expected GPUs alone or host memory alone, found GPU ",
                     ToString(*gpu), " and ", ToString(*other), " in host memory"));
  }

  absl::Status RouteGroup(int32_t group) {
    const TensorGroup& of = tensors_.groups()[group];
    if (of.sent_as.has_value()) {
      return absl::InvalidArgumentError("expected a tensor that is not converted");
    }
    const Placement& source = tensors_.PlacementOf(Side::kSource, group);
    const Placement& destination = tensors_.PlacementOf(Side::kDestination, group);
    const std::optional<CommonAxes> common = FindCommonAxes(source.mesh, destination.mesh);
    if (!common.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "expected meshes with the same devices in the same order, and axes that divide each "
          "other, found ",
          ToString(source.mesh), " and ", ToString(destination.mesh)));
    }
    const RedistributionInputs& inputs = request_.redistribution;
    RedistributionRequest request{
        .axes = common->axes, .shape = of.shape, .item_bytes = ItemBytes(of.type)};
    ASSIGN_OR_RETURN(request.source,
                     EndOn(source, common->of_source, inputs.source_partial, reduction_));
    ASSIGN_OR_RETURN(request.destination, EndOn(destination, common->of_destination,
                                                inputs.destination_partial, reduction_));
    RETURN_IF_ERROR(SetRule(*source.layout.axes(), *destination.layout.axes(), request));
    if (!inputs.source_partial.empty()) {
      RETURN_IF_ERROR(CheckReduction(of.type, {}));
    }
    ASSIGN_OR_RETURN(const Mesh mesh, Mesh::Create(common->axes, source.mesh.devices()));
    ASSIGN_OR_RETURN(Derivation derivation, Derive(request, mesh));
    RETURN_IF_ERROR(ProveDerivation(derivation));
    GroupRoute& route = routes_[group];
    route.group = group;
    route.derivation = std::make_unique<const Derivation>(std::move(derivation));
    route.lowering = std::make_unique<const Lowering>(*route.derivation);
    return absl::OkStatus();
  }

  static absl::Status SetRule(const AxisLayout& source, const AxisLayout& destination,
                              RedistributionRequest& request) {
    request.rule = source.rule == UnevenRule::kExact ? destination.rule : source.rule;
    if (source.rule == destination.rule || source.rule == UnevenRule::kExact ||
        destination.rule == UnevenRule::kExact) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(
        absl::StrCat("expected one rule for lengths that do not divide, found ",
                     UnevenRuleName(source.rule), " and ", UnevenRuleName(destination.rule)));
  }

  absl::StatusOr<Derivation> Derive(const RedistributionRequest& request, const Mesh& mesh) const {
    const CollectiveCost cost = CostOfMesh(mesh, request_.topology);
    if (method_.has_value()) return PlanBaseline(*method_, request, cost);
    const RedistributionOptions options{
        .objective = objective_, .cost = cost, .relay = !request_.redistribution.no_relays};
    ASSIGN_OR_RETURN(RedistributionResult result, SearchRedistribution(request, options));
    return std::move(result.derivation);
  }

  absl::StatusOr<Plan> PlanOneMove() {
    ReshardRequest move = request_;
    move.strategy = Strategy::kRelay;
    if (move.chunk_bytes == 0 && tensors_.hosts().size() == 1) move.chunk_bytes = kHostChunkBytes;
    ASSIGN_OR_RETURN(Plan plan, PlanReshard(move, cancelled_));
    Plan::Spec spec = plan.spec();
    spec.figures.strategy = std::string(StrategyName(Strategy::kRedistribute));
    spec.figures.search = SearchText();
    return Plan::Create(std::move(spec));
  }

  std::string SearchText() const {
    std::map<int, int64_t> tensors_by_steps;
    for (const auto& [group, route] : routes_) {
      tensors_by_steps[route.lowering->step_count()] += std::ssize(route.tensors);
    }
    std::string text;
    for (const auto& [steps, tensors] : tensors_by_steps) {
      absl::StrAppend(&text, text.empty() ? "" : ", ", tensors, " tensors in ", steps,
                      steps == 1 ? " step" : " steps");
    }
    return text;
  }

  bool has_partial() const { return !request_.redistribution.source_partial.empty(); }
  absl::StatusOr<std::vector<Course<StepTable>>> DraftWithinLimit() const;
  int64_t DeviceBytes(const std::vector<Course<StepTable>>& drafts) const;
  absl::StatusOr<Plan> PlanCourses();
  absl::StatusOr<Course<Plan>> PlanSteps(const Course<StepTable>& draft) const;

  const ReshardRequest& request_;
  const TensorTable& tensors_;
  const std::optional<CourseSizes> sizes_;  // nothing: as the devices are
  const CancelCheck cancelled_;
  PartialReduction reduction_ = PartialReduction::kSum;
  RedistributionObjective objective_ = RedistributionObjective::kSeconds;
  std::optional<RedistributionBaseline> method_;
  std::map<int32_t, GroupRoute> routes_;  // by group
  bool are_gpus_ = false;
};

absl::StatusOr<std::vector<Course<StepTable>>> RedistributionPlanner::DraftWithinLimit() const {
  std::vector<const GroupRoute*> routes;
  for (const auto& [group, route] : routes_) routes.push_back(&route);
  CourseSizes sizes = sizes_.value_or(are_gpus_ ? kGpuSizes : CourseSizes());
  while (true) {
    ASSIGN_OR_RETURN(std::vector<Course<StepTable>> drafts, DraftCourses(tensors_, routes, sizes));
    const int64_t bytes = DeviceBytes(drafts);
    if (request_.device_bytes_max == 0 || bytes <= request_.device_bytes_max) return drafts;
    if (sizes.array_bytes <= kArrayBytesMin) {
      return absl::ResourceExhaustedError(absl::StrCat("memory of a device: expected at most ",
                                                       request_.device_bytes_max, ", found ", bytes,
                                                       " at least, with what lies between steps"));
    }
    sizes.array_bytes = std::max(kArrayBytesMin, sizes.array_bytes / 4);
  }
}

// Of the fullest device, as the proof counts them, without staging.
int64_t RedistributionPlanner::DeviceBytes(const std::vector<Course<StepTable>>& drafts) const {
  int64_t most = 0;
  for (DeviceRank device = 0; device < std::ssize(tensors_.devices()); ++device) {
    const int64_t source = tensors_.BytesOf(Side::kSource, device);
    const int64_t destination =
        tensors_.BytesOf(Side::kDestination, device) *
        DestinationArenas(request_.binding, request_.shared_storage, source);
    int64_t arrays = 0;
    for (const Course<StepTable>& draft : drafts) {
      const CourseMemory memory(CourseTables(draft), tensors_.devices()[device]);
      arrays = std::max(arrays, memory.bytes());
    }
    most = std::max(most, source + destination + arrays);
  }
  return most;
}

absl::StatusOr<Plan> RedistributionPlanner::PlanCourses() {
  absl::StatusOr<std::vector<Course<StepTable>>> drafts = DraftWithinLimit();
  // One move has nothing between steps, and the proof has the last word on it.
  if (absl::IsResourceExhausted(drafts.status()) && !has_partial()) return PlanOneMove();
  RETURN_IF_ERROR(drafts.status());
  ASSIGN_OR_RETURN(Slicing slicing, Slicing::Create(tensors_));
  std::vector<Course<Plan>> courses;
  for (const Course<StepTable>& draft : *drafts) {
    ASSIGN_OR_RETURN(Course<Plan> course, PlanSteps(draft));
    courses.push_back(std::move(course));
  }
  ASSIGN_OR_RETURN(PlanFigures figures, FiguresOfCourses(request_, slicing, courses));
  figures.search = SearchText();
  return Plan::Create(
      {.tensors = request_.tensors,
       .slicing = std::make_shared<const Slicing>(std::move(slicing)),
       .courses = std::make_shared<const std::vector<Course<Plan>>>(std::move(courses)),
       .binding = request_.binding,
       .shared_storage = request_.shared_storage,
       .figures = std::move(figures)});
}

absl::StatusOr<Course<Plan>> RedistributionPlanner::PlanSteps(
    const Course<StepTable>& draft) const {
  Course<Plan> course{
      .instances = draft.instances, .buffers = draft.buffers, .tensors = draft.tensors};
  for (const Course<StepTable>::Step& step : draft.steps) {
    ReshardRequest request{.tensors = step.move->table,
                           .topology = request_.topology,
                           .chunk_bytes = request_.chunk_bytes,
                           .nic_share = request_.nic_share,
                           // All steps are over one communicator of all devices.
                           .no_broadcasts = true,
                           .no_m2n = "it is a step of several"};
    // Between GPUs the planner finds the best size.
    if (request.chunk_bytes == 0 && !are_gpus_) request.chunk_bytes = kStepChunkBytes;
    ASSIGN_OR_RETURN(Plan plan, PlanReshard(request, cancelled_));
    course.steps.push_back(
        {.move = std::make_shared<const Plan>(std::move(plan)), .reduction = step.reduction});
    RETURN_IF_ERROR(CheckWanted(cancelled_));
  }
  return course;
}

}  // namespace

absl::StatusOr<Plan> PlanRedistribution(const ReshardRequest& request, CancelCheck cancelled,
                                        const std::optional<CourseSizes>& sizes) {
  CHECK(request.tensors != nullptr);
  return RedistributionPlanner(request, sizes, cancelled).Make();
}

}  // namespace crossmesh
