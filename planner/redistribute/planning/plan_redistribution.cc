#include "planner/redistribute/planning/plan_redistribution.h"

#include "common/base/check.h"
#include "common/base/format.h"
#include "common/base/status_macros.h"
#include "common/plan/course_tables.h"
#include "common/plan/proof.h"
#include "common/plan/releasing_memory.h"
#include "planner/network/host_network.h"
#include "planner/redistribute/planning/collective_choice.h"
#include "planner/redistribute/planning/course_draft.h"
#include "planner/redistribute/planning/course_figures.h"
#include "planner/redistribute/planning/group_routes.h"
#include "planner/redistribute/planning/separate_gpus.h"
#include "planner/redistribute/planning/step_planner.h"
#include "planner/redistribute/planning/sum_ring.h"
#include "planner/reshard/broadcast_choice.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// The most of a chunk in one move inside a host, where no network is to be kept busy by small ones:
// by measurement (docs/benchmarks/collectives.md).
constexpr int64_t kHostChunkBytes = int64_t{2} << 20;

// On GPUs, where steps follow each other and each costs calls of NCCL and looks at the GPU:
// assumed, as nothing of it was measured.
constexpr CourseSizes kGpuSizes = {.array_bytes = int64_t{256} << 20, .instances = 1, .buffers = 1};

// Arrays are made no smaller than these to stay within a limit of memory.
constexpr int64_t kArrayBytesMin = int64_t{64} << 10;

// Whether a time is less than another one by more than what sums of it in another order differ by.
bool IsLess(double seconds, double other) { return seconds < other * (1 - 1e-9); }

class RedistributionPlanner {
 public:
  RedistributionPlanner(const ReshardRequest& request, const std::optional<CourseSizes>& sizes,
                        CancelCheck cancelled)
      : request_(request), tensors_(*request.tensors), sizes_(sizes), cancelled_(cancelled) {}

  absl::StatusOr<Plan> Make() {
    RETURN_IF_ERROR(CheckReductionOrder(request_.redistribution.reduction_order));
    FindGpus();
    if (releases()) RETURN_IF_ERROR(CheckReleasing());
    ASSIGN_OR_RETURN(routes_, GroupRoutes::Find(request_, RouteMedia::kMessages, cancelled_));
    ASSIGN_OR_RETURN(Plan plan, PlanWithoutCollectives());
    if (!are_gpus_ || !MayUseCollectives(request_)) return plan;
    return PlanFasterCollectives(std::move(plan));
  }

 private:
  void FindGpus() {
    const auto gpus = std::ranges::count_if(tensors_.devices(), [this](const DeviceId& device) {
      return request_.topology.FindGpu(device) != nullptr;
    });
    are_gpus_ = gpus > 0 && gpus == std::ssize(tensors_.devices());
    is_mixed_ = gpus > 0 && !are_gpus_;
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

  // With collectives where that is predicted to take no longer: of the steps that the search takes
  // when it knows of them, or of those that it takes without, since predictions have the last word.
  absl::StatusOr<Plan> PlanFasterCollectives(Plan plan) const {
    ASSIGN_OR_RETURN(const GroupRoutes knowing,
                     GroupRoutes::Find(request_, RouteMedia::kCollectives, cancelled_));
    std::vector<const GroupRoutes*> candidates = {&*routes_};
    if (!knowing.IsSameAs(*routes_)) candidates.push_back(&knowing);
    double least = SecondsWithBroadcasts(plan.spec());
    for (const GroupRoutes* const routes : candidates) {
      ASSIGN_OR_RETURN(std::optional<Plan> collective, PlanCollectives(*routes));
      if (!collective.has_value() || collective->figures().predicted_seconds > least) continue;
      least = collective->figures().predicted_seconds;
      plan = *std::move(collective);
    }
    return plan;
  }

  // In one move of the whole, slots with summands would count as such with the same values, and
  // nothing could be released before the end.
  absl::StatusOr<Plan> PlanWithoutCollectives() {
    if (has_partial() || releases()) return PlanCourses();
    if (is_free()) return PlanTheFaster();
    return has_single_steps() ? PlanOneMove(routes_->StepCounts()) : PlanWithinMemory();
  }

  // The search prices steps as collectives, but workers route each as a reshard, so one move of all
  // may well be as fast as several steps; and it prices a relay at its bound, which the time to
  // fill routes keeps some from. What plans are predicted to take decides: where the move takes no
  // longer than the bound, no steps can take less.
  absl::StatusOr<Plan> PlanTheFaster() {
    absl::StatusOr<Plan> move = MoveAll();
    // More relays than a plan may have.
    if (absl::IsResourceExhausted(move.status()) && !has_single_steps()) return PlanCourses();
    RETURN_IF_ERROR(move.status());
    const PlanFigures& of_move = move->figures();
    if (!IsLess(of_move.bound.seconds, of_move.predicted_seconds)) {
      return Finished(*move, AtTheBound());
    }
    const bool may_send_more = request_.redistribution.objective != "bytes";
    if (has_single_steps() && may_send_more) RETURN_IF_ERROR(FindStepsWithoutRelays());
    if (has_single_steps()) return Finished(*move, routes_->StepCounts());
    absl::StatusOr<Plan> steps = PlanCourses();
    if (absl::IsResourceExhausted(steps.status())) return Finished(*move, WithoutSteps());
    RETURN_IF_ERROR(steps.status());
    const PlanFigures& of_steps = steps->figures();
    if (IsLess(of_steps.predicted_seconds, of_move.predicted_seconds)) {
      return Finished(*steps, absl::StrCat(routes_->StepCounts(), "; in 1 step all would take ",
                                           FormatSeconds(of_move.predicted_seconds)));
    }
    return Finished(*move,
                    absl::StrCat(routes_->InOneStep(), "; by the search: ", routes_->StepCounts(),
                                 ", which would take ", FormatSeconds(of_steps.predicted_seconds)));
  }

  // Of tensors that the search moves at once; where there are none, routes stay as they are.
  absl::Status FindStepsWithoutRelays() {
    ReshardRequest request = request_;
    request.redistribution.no_relays = true;
    absl::StatusOr<GroupRoutes> routes =
        GroupRoutes::Find(request, RouteMedia::kMessages, cancelled_);
    if (absl::IsResourceExhausted(routes.status())) return absl::OkStatus();
    RETURN_IF_ERROR(routes.status());
    routes_ = *std::move(routes);
    return absl::OkStatus();
  }

  // Steps or, where nothing can lie between them, one move; the proof has the last word on that.
  absl::StatusOr<Plan> PlanWithinMemory() {
    absl::StatusOr<Plan> steps = PlanCourses();
    return absl::IsResourceExhausted(steps.status()) ? PlanOneMove(WithoutSteps()) : steps;
  }

  absl::StatusOr<Plan> PlanOneMove(std::string search) const {
    ASSIGN_OR_RETURN(const Plan plan, MoveAll());
    return Finished(plan, std::move(search));
  }

  absl::StatusOr<Plan> MoveAll() const {
    ReshardRequest move = request_;
    move.strategy = Strategy::kRelay;
    if (move.chunk_bytes == 0 && tensors_.hosts().size() == 1) move.chunk_bytes = kHostChunkBytes;
    return PlanReshard(move, cancelled_);
  }

  static absl::StatusOr<Plan> Finished(const Plan& plan, std::string search) {
    Plan::Spec spec = plan.spec();
    spec.figures.strategy = std::string(StrategyName(Strategy::kRedistribute));
    spec.figures.search = std::move(search);
    return Plan::Create(std::move(spec));
  }

  std::string AtTheBound() const {
    if (has_single_steps()) return routes_->StepCounts();
    return absl::StrCat(routes_->InOneStep(),
                        ", as fast as any plan; by the search: ", routes_->StepCounts());
  }

  std::string WithoutSteps() const {
    return absl::StrCat(
        routes_->InOneStep(),
        ", since nothing may lie between steps; by the search: ", routes_->StepCounts());
  }

  // Whether the request leaves it to the planner how often tensors move.
  bool is_free() const {
    return !request_.redistribution.no_relays && request_.redistribution.method.empty();
  }
  bool has_single_steps() const { return routes_->are_single_steps(); }
  bool releases() const { return request_.redistribution.release_source; }
  bool has_partial() const { return !request_.redistribution.source_partial.empty(); }
  absl::StatusOr<std::vector<Course<StepTable>>> DraftWithinLimit(CourseSizes sizes) const;
  template <typename Move>
  int64_t DeviceBytes(const std::vector<Course<Move>>& drafts) const;
  absl::StatusOr<Plan> PlanCourses();
  absl::StatusOr<Plan> PlanCoursesOf(const CourseSizes& sizes) const;
  absl::StatusOr<std::optional<Plan>> PlanCollectives(const GroupRoutes& routes) const;
  absl::StatusOr<Plan> PlanOf(std::vector<Course<Plan>> courses, const GroupRoutes& routes) const;
  absl::StatusOr<std::optional<Course<Plan>>> RingWorthTaking(const Course<StepTable>& draft,
                                                              const Course<Plan>& at_once) const;
  StepPlanner step_planner() const {
    return StepPlanner(request_,
                       {.are_gpus = are_gpus_, .is_mixed = is_mixed_, .over_gpus = over_gpus_},
                       cancelled_);
  }
  // Sums may go round rings where the source stays until the last of these steps.
  bool may_round_rings() const {
    return !are_gpus_ && !is_mixed_ && request_.beside != Beside::kTransfers && !releases() &&
           !(request_.shared_storage && request_.binding == BindingMode::kInPlace);
  }
  bool fits(int64_t bytes) const {
    return request_.device_bytes_max == 0 || bytes <= request_.device_bytes_max;
  }

  const ReshardRequest& request_;
  const TensorTable& tensors_;
  const std::optional<CourseSizes> sizes_;  // nothing: as the devices are
  const CancelCheck cancelled_;
  std::optional<GroupRoutes> routes_;
  bool are_gpus_ = false;
  bool is_mixed_ = false;
  std::vector<DeviceRank> over_gpus_;  // of courses that join GPUs and host memory
};

absl::StatusOr<std::vector<Course<StepTable>>> RedistributionPlanner::DraftWithinLimit(
    CourseSizes sizes) const {
  const std::vector<const GroupRoute*> routes = routes_->all();
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
template <typename Move>
int64_t RedistributionPlanner::DeviceBytes(const std::vector<Course<Move>>& drafts) const {
  int64_t most = 0;
  const std::vector<CourseTables> courses(drafts.begin(), drafts.end());
  if (releases()) {
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
    for (const CourseTables& course : courses) {
      arrays = std::max(arrays, CourseMemory(course, tensors_.devices()[device]).bytes());
    }
    most = std::max(most, source + destination + arrays);
  }
  return most;
}

absl::StatusOr<Plan> RedistributionPlanner::PlanCourses() {
  if (is_mixed_) {
    ASSIGN_OR_RETURN(const std::vector<Course<StepTable>> drafts,
                     DraftCourses(tensors_, routes_->all(), CourseSizes()));
    ASSIGN_OR_RETURN(over_gpus_, SeparateGpus(tensors_, drafts, request_.topology));
  }
  if (sizes_.has_value() || over_gpus_.empty()) {
    return PlanCoursesOf(sizes_.value_or(are_gpus_ ? kGpuSizes : CourseSizes()));
  }
  // Both halves go through the same instances, as one of them would have these by itself.
  ASSIGN_OR_RETURN(Plan many, PlanCoursesOf(CourseSizes()));
  ASSIGN_OR_RETURN(Plan few, PlanCoursesOf(kGpuSizes));
  return IsLess(many.figures().predicted_seconds, few.figures().predicted_seconds) ? std::move(many)
                                                                                   : std::move(few);
}

absl::StatusOr<Plan> RedistributionPlanner::PlanCoursesOf(const CourseSizes& sizes) const {
  ASSIGN_OR_RETURN(const std::vector<Course<StepTable>> drafts, DraftWithinLimit(sizes));
  auto step_count =
      std::transform_reduce(drafts.begin(), drafts.end(), int64_t{0}, std::plus<>(),
                            [](const Course<StepTable>& draft) { return std::ssize(draft.steps); });
  std::vector<Course<Plan>> courses;
  for (const Course<StepTable>& draft : drafts) {
    ASSIGN_OR_RETURN(Course<Plan> course, step_planner().PlanSteps(draft));
    ASSIGN_OR_RETURN(std::optional<Course<Plan>> ring, RingWorthTaking(draft, course));
    const int64_t more = ring.has_value() ? std::ssize(ring->steps) - std::ssize(course.steps) : 0;
    const bool takes_ring = ring.has_value() && step_count + more <= kCourseStepsMax;
    if (takes_ring) step_count += more;
    courses.push_back(takes_ring ? *std::move(ring) : std::move(course));
  }
  return PlanOf(std::move(courses), *routes_);
}

// Nothing where the sums of its first step are better made at once.
absl::StatusOr<std::optional<Course<Plan>>> RedistributionPlanner::RingWorthTaking(
    const Course<StepTable>& draft, const Course<Plan>& at_once) const {
  if (!may_round_rings() || !HasLongRounds(at_once)) return std::nullopt;
  ASSIGN_OR_RETURN(const std::optional<Course<StepTable>> ring,
                   DraftSumRing(draft, request_.redistribution.reduction_order,
                                sizes_.value_or(CourseSizes()).row_elements));
  if (!ring.has_value() || !fits(DeviceBytes(std::vector{*ring}))) return std::nullopt;
  ASSIGN_OR_RETURN(Course<Plan> planned, step_planner().PlanSteps(*ring));
  const HostNetwork network = HostNetworkOf(
      tensors_,
      request_.nic_share < 1 ? request_.topology.WithShare(request_.nic_share) : request_.topology);
  if (!IsRingWorthIt(planned, at_once, tensors_, network)) return std::nullopt;
  return planned;
}

// Of whole tensors, with a collective for each step for which one is predicted to take no longer;
// nothing where there is none, or no memory.
absl::StatusOr<std::optional<Plan>> RedistributionPlanner::PlanCollectives(
    const GroupRoutes& routes) const {
  CourseSizes sizes = sizes_.value_or(kGpuSizes);
  sizes.whole_tensors = true;
  ASSIGN_OR_RETURN(std::vector<Course<StepTable>> drafts,
                   DraftCourses(tensors_, routes.all(), sizes));
  bool has_collective = false;
  int64_t steps = 0;
  for (const Course<StepTable>& draft : drafts) {
    steps += std::ssize(draft.steps);
    for (const Course<StepTable>::Step& step : draft.steps) {
      has_collective |= CollectiveFor(request_, step.move->tensors(), step.reduction).has_value();
    }
  }
  if (!has_collective || steps > kCourseStepsMax) return std::nullopt;
  has_collective = false;
  CollectiveChoice choice(request_);
  std::vector<Course<Plan>> courses;
  for (const Course<StepTable>& draft : drafts) {
    ASSIGN_OR_RETURN(Course<Plan> course, step_planner().PlanSteps(draft));
    for (Course<Plan>::Step& step : course.steps) {
      ASSIGN_OR_RETURN(step, choice.Choose(std::move(step)));
      has_collective |= step.collective.has_value();
    }
    courses.push_back(std::move(course));
  }
  if (!has_collective) return std::nullopt;
  if (!fits(DeviceBytes(courses))) return std::nullopt;
  return PlanOf(std::move(courses), routes);
}

absl::StatusOr<Plan> RedistributionPlanner::PlanOf(std::vector<Course<Plan>> courses,
                                                   const GroupRoutes& routes) const {
  ASSIGN_OR_RETURN(Slicing slicing, Slicing::Create(tensors_));
  ASSIGN_OR_RETURN(PlanFigures figures, FiguresOfCourses(request_, slicing, courses, over_gpus_));
  figures.search =
      absl::StrCat(routes.StepCounts(), ReductionOrderText(courses), CollectivesText(courses));
  return Plan::Create(
      {.tensors = request_.tensors,
       .slicing = std::make_shared<const Slicing>(std::move(slicing)),
       .over_gpus = over_gpus_,
       .courses = std::make_shared<const std::vector<Course<Plan>>>(std::move(courses)),
       .binding = request_.binding,
       .shared_storage = request_.shared_storage,
       .figures = std::move(figures)});
}

}  // namespace

absl::StatusOr<Plan> PlanRedistribution(const ReshardRequest& request, CancelCheck cancelled,
                                        const std::optional<CourseSizes>& sizes) {
  CHECK(request.tensors != nullptr);
  return RedistributionPlanner(request, sizes, cancelled).Make();
}

}  // namespace crossmesh
