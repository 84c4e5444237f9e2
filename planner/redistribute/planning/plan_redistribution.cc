#include "planner/redistribute/planning/plan_redistribution.h"

#include "common/base/check.h"
#include "common/base/error_place.h"
#include "common/base/status_macros.h"
#include "common/plan/course_tables.h"
#include "common/plan/proof.h"
#include "common/plan/releasing_memory.h"
#include "planner/redistribute/planning/course_draft.h"
#include "planner/redistribute/planning/course_figures.h"
#include "planner/redistribute/planning/lowering.h"
#include "planner/redistribute/planning/pair_search.h"

#include <algorithm>
#include <cstdint>
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
constexpr CourseSizes kGpuSizes = {.array_bytes = int64_t{256} << 20, .instances = 1, .buffers = 1};

// Arrays are made no smaller than these to stay within a limit of memory.
constexpr int64_t kArrayBytesMin = int64_t{64} << 10;

class RedistributionPlanner {
 public:
  RedistributionPlanner(const ReshardRequest& request, const std::optional<CourseSizes>& sizes,
                        CancelCheck cancelled)
      : request_(request), tensors_(*request.tensors), sizes_(sizes), cancelled_(cancelled) {}

  absl::StatusOr<Plan> Make() {
    ASSIGN_OR_RETURN(const PairSearches searches, PairSearches::Create(request_));
    RETURN_IF_ERROR(CheckDevices());
    if (releases()) RETURN_IF_ERROR(CheckReleasing());
    for (int32_t group = 0; group < std::ssize(tensors_.groups()); ++group) {
      if (tensors_.tensors_in_group(group) == 0) continue;
      RETURN_IF_ERROR(At(tensors_.NameOf(group), RouteGroup(searches, group)));
      RETURN_IF_ERROR(CheckWanted(cancelled_));
    }
    for (int32_t t = 0; t < std::ssize(tensors_.group_of_tensor()); ++t) {
      const int32_t group = tensors_.group_of_tensor()[t];
      if (group >= 0) routes_.at(group).tensors.push_back(t);
    }
    // In one move of the whole, slots with summands would count as such with the same values, and
    // nothing could be released before the end.
    const bool is_one_move =
        !has_partial() && !releases() && std::ranges::all_of(routes_, [](const auto& entry) {
          return entry.second.lowering->step_count() == 1;
        });
    return is_one_move ? PlanOneMove() : PlanCourses();
  }

 private:
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

  absl::Status CheckReleasing() const {
    if (request_.binding != BindingMode::kInPlace || request_.shared_storage) {
      return absl::InvalidArgumentError(absl::StrCat(
          "release_source: expected binding in_place and another storage for the destination, "
          "found binding ",
          BindingModeName(request_.binding), request_.shared_storage ? " of one storage" : ""));
    }
    for (const DeviceId& device : tensors_.devices()) {
      if (request_.topology.FindGpu(device) == nullptr) continue;
      return absl::UnimplementedError(absl::StrCat(
          "release_source: expected devices of host memory, found GPU ", ToString(device)));
    }
    if (tensors_.replicas() == 1) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("release_source: expected all devices to commit together, found ",
                     tensors_.replicas(), " replicas"));
  }

  absl::Status RouteGroup(const PairSearches& searches, int32_t group) {
    ASSIGN_OR_RETURN(const PairSearch search, searches.Of(group));
    ASSIGN_OR_RETURN(Derivation derivation, search.Find());
    GroupRoute& route = routes_[group];
    route.group = group;
    route.derivation = std::make_unique<const Derivation>(std::move(derivation));
    route.lowering = std::make_unique<const Lowering>(*route.derivation);
    if (releases()) {
      const TypeSpace& space = route.derivation->space();
      route.tile_bytes =
          std::max(space.LocalBytes(space.source()), space.LocalBytes(space.destination()));
    }
    return absl::OkStatus();
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
    if (has_partial()) absl::StrAppend(&text, ", summands in the order of their coordinates");
    return text;
  }

  bool releases() const { return request_.redistribution.release_source; }
  bool has_partial() const { return !request_.redistribution.source_partial.empty(); }
  absl::StatusOr<std::vector<Course<StepTable>>> DraftWithinLimit() const;
  int64_t DeviceBytes(const std::vector<Course<StepTable>>& drafts) const;
  absl::StatusOr<Plan> PlanCourses();
  absl::StatusOr<Course<Plan>> PlanSteps(const Course<StepTable>& draft) const;

  const ReshardRequest& request_;
  const TensorTable& tensors_;
  const std::optional<CourseSizes> sizes_;  // nothing: as the devices are
  const CancelCheck cancelled_;
  std::map<int32_t, GroupRoute> routes_;  // by group
  bool are_gpus_ = false;
};

absl::StatusOr<std::vector<Course<StepTable>>> RedistributionPlanner::DraftWithinLimit() const {
  std::vector<const GroupRoute*> routes;
  for (const auto& [group, route] : routes_) routes.push_back(&route);
  const auto fits = [&](int64_t bytes) {
    return request_.device_bytes_max == 0 || bytes <= request_.device_bytes_max;
  };
  CourseSizes sizes = sizes_.value_or(are_gpus_ ? kGpuSizes : CourseSizes());
  if (releases()) sizes.row_elements = sizes.released_row_elements;
  int64_t least = INT64_MAX;
  while (true) {
    ASSIGN_OR_RETURN(std::vector<Course<StepTable>> drafts, DraftCourses(tensors_, routes, sizes));
    const int64_t bytes = DeviceBytes(drafts);
    if (fits(bytes)) return drafts;
    least = std::min(least, bytes);
    if (sizes.array_bytes <= kArrayBytesMin) break;
    sizes.array_bytes = std::max(kArrayBytesMin, sizes.array_bytes / 4);
  }
  ASSIGN_OR_RETURN(std::vector<Course<StepTable>> drafts, DraftLeastCourses(tensors_, routes));
  const int64_t bytes = DeviceBytes(drafts);
  if (fits(bytes)) return drafts;
  return absl::ResourceExhaustedError(absl::StrCat(
      "memory of a device: expected at least ", std::min(least, bytes), " bytes, with what lies ",
      "between steps, found a limit of ", request_.device_bytes_max));
}

// Of the fullest device, as the proof counts them, without staging.
int64_t RedistributionPlanner::DeviceBytes(const std::vector<Course<StepTable>>& drafts) const {
  int64_t most = 0;
  if (releases()) {
    const std::vector<CourseTables> courses(drafts.begin(), drafts.end());
    for (const DeviceId& device : tensors_.devices()) {
      most = std::max(most, ReleasingPeakBytes(tensors_, courses, device));
    }
    return most;
  }
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
  if (absl::IsResourceExhausted(drafts.status()) && !has_partial() && !releases()) {
    return PlanOneMove();
  }
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
  Course<Plan> course{.instances = draft.instances,
                      .buffers = draft.buffers,
                      .tensors = draft.tensors,
                      .releases_source = releases()};
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
