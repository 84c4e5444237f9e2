#include "planner/redistribute/planning/course_draft.h"

#include "common/base/status_macros.h"
#include "common/plan/communicator_splits.h"
#include "common/plan/course_tables.h"
#include "common/plan/step_collective.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

namespace crossmesh {
namespace {

constexpr int64_t kInstancesMax = 1024;
static_assert(4 * kInstancesMax <= kCourseInstancesMax);

// Of so many summands arrays are as large as of one.
constexpr int64_t kSummandsAtOnce = 4;

// How a group's tensors are dealt out to the instances of a course: so many in each, of which each
// has so many slabs.
struct Split {
  int64_t tensors = 1;  // instances among which the group's tensors are dealt out
  int64_t slabs = 1;
};

bool IsUneven(const LocalType& type) {
  return std::ranges::any_of(type.dimensions, [](const std::vector<DimensionCut>& cuts) {
    return std::ranges::any_of(cuts, [](const DimensionCut& cut) { return cut.stride == 0; });
  });
}

// One move of what does not divide is the request's own, whatever its rule makes of parts of axes.
bool IsWhole(const GroupRoute& route) {
  const TypeSpace& space = route.derivation->space();
  return route.lowering->step_count() == 1 && space.source().partial.empty() &&
         (IsUneven(space.source()) || IsUneven(space.destination()));
}

// Nothing when the group cannot be dealt out to so many instances.
std::optional<Split> SplitOf(const GroupRoute& route, int64_t instances, const CourseSizes& sizes) {
  const auto count = std::ssize(route.tensors);
  const SlabPlace place = route.lowering->slab_place();
  for (int64_t among = std::min(instances, count); among >= 1; --among) {
    if (instances % among != 0 || count % among != 0) continue;
    const int64_t slabs = instances / among;
    if (slabs > 1 && sizes.whole_tensors) continue;
    if (place.length % slabs != 0 || (slabs > 1 && IsWhole(route))) continue;
    if (slabs > 1 && place.length / slabs * place.stride < sizes.row_elements) continue;
    return Split{.tensors = among, .slabs = slabs};
  }
  return std::nullopt;
}

// Of an instance of these.
int64_t ArrayBytesWanted(const std::vector<const GroupRoute*>& routes, const CourseSizes& sizes) {
  int64_t summands = 1;
  for (const GroupRoute* const route : routes) {
    summands = std::max(summands, route->lowering->summands());
  }
  const int64_t of_summand = std::min(kStepChunkBytes, sizes.array_bytes / kSummandsAtOnce);
  return std::max(sizes.array_bytes, std::min(summands, 4 * kSummandsAtOnce) * of_summand);
}

// So many that arrays stay small, and that all groups, or those with nearly all bytes, can be dealt
// out to.
int64_t InstancesOf(const std::vector<const GroupRoute*>& routes, const CourseSizes& sizes) {
  int64_t bytes = 0;
  for (const GroupRoute* const route : routes) bytes += route->array_bytes();
  const int64_t worth = std::min(sizes.instances, bytes / sizes.array_bytes_min);
  const int64_t wanted = std::clamp<int64_t>(
      std::max(bytes / ArrayBytesWanted(routes, sizes), worth), 1, kInstancesMax);
  int64_t best = 1;
  int64_t best_rest = bytes;
  for (int64_t instances = wanted; instances <= 4 * wanted && best_rest > 0; ++instances) {
    int64_t rest = 0;
    for (const GroupRoute* const route : routes) {
      if (!SplitOf(*route, instances, sizes).has_value()) rest += route->array_bytes();
    }
    if (rest < best_rest) {
      best = instances;
      best_rest = rest;
    }
  }
  return wanted == 1 ? 1 : best;
}

// The tables of a course's steps, and which tensors each instance has.
class CourseTensors {
 public:
  CourseTensors(const TensorTable& whole, int64_t instances, size_t steps, const CourseSizes& sizes)
      : whole_(whole), instances_(instances), sizes_(sizes), specs_(steps) {
    for (TensorTable::Spec& spec : specs_) spec.manifest = whole.manifest();
    of_instance_.resize(instances);
  }

  absl::Status Add(const GroupRoute& route) {
    const Split split = *SplitOf(route, instances_, sizes_);
    const auto count = static_cast<int32_t>(std::ssize(route.tensors) / split.tensors);
    for (int64_t i = 0; i < instances_; ++i) {
      const auto first = route.tensors.begin() + i / split.slabs * count;
      of_instance_[i].insert(of_instance_[i].end(), first, first + count);
    }
    if (IsWhole(route)) return AddWhole(route, count);
    const Placement& source = whole_.PlacementOf(Side::kSource, route.group);
    ASSIGN_OR_RETURN(const Mesh mesh, Mesh::Create(route.lowering->axes(), source.mesh.devices()));
    ASSIGN_OR_RETURN(const std::vector<LoweredStep> steps, route.lowering->Steps(split.slabs));
    for (size_t k = 0; k < steps.size(); ++k) {
      TensorTable::Spec& spec = specs_[k];
      TensorGroup group{
          .shape = steps[k].shape,
          .type = whole_.groups()[route.group].type,
          .source = Intern({mesh, Layout(steps[k].source)}, spec.sources),
          .destination = Intern({mesh, Layout(steps[k].destination)}, spec.destinations),
          .slab = steps[k].slab};
      group.slab.in_source = k == 0 && split.slabs > 1;
      group.slab.in_destination =
          k + 1 == steps.size() && split.slabs > 1 && !steps[k].reduction.has_value();
      spec.group_of_tensor.insert(spec.group_of_tensor.end(), count,
                                  static_cast<int32_t>(spec.groups.size()));
      spec.groups.push_back(std::move(group));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Course<StepTable>> Take(const std::vector<std::optional<Reduction>>& reductions) {
    Course<StepTable> course{
        .instances = static_cast<int32_t>(instances_),
        .buffers = static_cast<int32_t>(std::min<int64_t>(instances_, sizes_.buffers))};
    for (const std::vector<int32_t>& tensors : of_instance_) {
      course.tensors.insert(course.tensors.end(), tensors.begin(), tensors.end());
    }
    for (size_t k = 0; k < specs_.size(); ++k) {
      ASSIGN_OR_RETURN(TensorTable table, TensorTable::Create(std::move(specs_[k])));
      course.steps.push_back({.move = std::make_shared<const StepTable>(
                                  StepTable{std::make_shared<const TensorTable>(std::move(table))}),
                              .reduction = reductions[k]});
    }
    return course;
  }

 private:
  absl::Status AddWhole(const GroupRoute& route, int32_t count) {
    TensorTable::Spec& spec = specs_.front();
    TensorGroup group = whole_.groups()[route.group];
    group.source = Intern(whole_.PlacementOf(Side::kSource, route.group), spec.sources);
    group.destination =
        Intern(whole_.PlacementOf(Side::kDestination, route.group), spec.destinations);
    spec.group_of_tensor.insert(spec.group_of_tensor.end(), count,
                                static_cast<int32_t>(spec.groups.size()));
    spec.groups.push_back(std::move(group));
    return absl::OkStatus();
  }

  static int32_t Intern(Placement placement, std::vector<Placement>& known) {
    const auto found = std::ranges::find(known, placement);
    if (found != known.end()) return static_cast<int32_t>(found - known.begin());
    known.push_back(std::move(placement));
    return static_cast<int32_t>(known.size()) - 1;
  }

  const TensorTable& whole_;
  const int64_t instances_;
  const CourseSizes sizes_;
  std::vector<TensorTable::Spec> specs_;
  std::vector<std::vector<int32_t>> of_instance_;
};

// Of the fullest device.
int64_t ArrayBytesOf(const TensorTable& whole, const Course<StepTable>& course) {
  int64_t most = 0;
  for (const DeviceId& device : whole.devices()) {
    most = std::max(most, CourseMemory(CourseTables(course), device).bytes());
  }
  return most;
}

int64_t MostInstances(const GroupRoute& route, const CourseSizes& sizes) {
  int64_t instances = kCourseInstancesMax;
  while (!SplitOf(route, instances, sizes).has_value()) --instances;
  return instances;
}

absl::StatusOr<Course<StepTable>> DraftCourse(const TensorTable& whole,
                                              const std::vector<const GroupRoute*>& routes,
                                              int64_t instances, const CourseSizes& sizes) {
  const std::vector<std::optional<Reduction>> reductions = routes.front()->lowering->reductions();
  CourseTensors tensors(whole, instances, reductions.size(), sizes);
  for (const GroupRoute* const route : routes) RETURN_IF_ERROR(tensors.Add(*route));
  return tensors.Take(reductions);
}

// What is the same of routes that take a course together: of each step its reduction, and the
// collective that it is, with its groups.
using RouteKind = std::vector<std::tuple<int, int64_t, int, CommunicatorSplit>>;

absl::StatusOr<RouteKind> KindOf(const TensorTable& whole, const GroupRoute& route,
                                 const CourseSizes& sizes) {
  RouteKind kind;
  for (const std::optional<Reduction>& reduction : route.lowering->reductions()) {
    kind.emplace_back(reduction.has_value() ? static_cast<int>(reduction->kind) : -1,
                      reduction.has_value() ? reduction->divisor : 0, -1, CommunicatorSplit());
  }
  if (!sizes.whole_tensors) return kind;
  ASSIGN_OR_RETURN(const Course<StepTable> alone, DraftCourse(whole, {&route}, 1, sizes));
  for (size_t k = 0; k < kind.size(); ++k) {
    const Course<StepTable>::Step& step = alone.steps[k];
    const std::optional<GroupedCollective> found =
        FindStepCollective(step.move->tensors(), step.reduction);
    if (!found.has_value()) continue;
    std::get<2>(kind[k]) = static_cast<int>(found->kind);
    std::get<3>(kind[k]) = SplitFor(whole, step.move->tensors(), *found);
  }
  return kind;
}

}  // namespace

absl::StatusOr<std::vector<Course<StepTable>>> DraftCourses(
    const TensorTable& whole, std::span<const GroupRoute* const> routes, const CourseSizes& sizes) {
  std::map<RouteKind, std::vector<const GroupRoute*>> alike;
  for (const GroupRoute* const route : routes) {
    ASSIGN_OR_RETURN(const RouteKind kind, KindOf(whole, *route, sizes));
    alike[kind].push_back(route);
  }
  std::vector<Course<StepTable>> courses;
  for (const auto& [steps, of_steps] : alike) {
    const int64_t instances = InstancesOf(of_steps, sizes);
    std::vector<const GroupRoute*> dealt;
    std::vector<const GroupRoute*> rest;
    for (const GroupRoute* const route : of_steps) {
      (SplitOf(*route, instances, sizes).has_value() ? dealt : rest).push_back(route);
    }
    for (const auto& [of_course, count] :
         {std::pair(dealt, instances), std::pair(rest, int64_t{1})}) {
      if (of_course.empty()) continue;
      ASSIGN_OR_RETURN(Course<StepTable> course, DraftCourse(whole, of_course, count, sizes));
      courses.push_back(std::move(course));
    }
  }
  return courses;
}

absl::StatusOr<std::vector<Course<StepTable>>> DraftLeastCourses(
    const TensorTable& whole, std::span<const GroupRoute* const> routes) {
  const CourseSizes sizes{.array_bytes = 1, .row_elements = 1, .buffers = 1};
  int64_t steps = 0;
  for (const GroupRoute* const route : routes) steps += route->lowering->step_count();
  if (steps > kCourseStepsMax) return DraftCourses(whole, routes, sizes);
  std::vector<Course<StepTable>> courses;
  for (const GroupRoute* const route : routes) {
    ASSIGN_OR_RETURN(Course<StepTable> many,
                     DraftCourse(whole, {route}, MostInstances(*route, sizes), sizes));
    // Of one instance two arrays are there at a time, of several ones all.
    ASSIGN_OR_RETURN(Course<StepTable> one, DraftCourse(whole, {route}, 1, sizes));
    courses.push_back(ArrayBytesOf(whole, many) < ArrayBytesOf(whole, one) ? std::move(many)
                                                                           : std::move(one));
  }
  return courses;
}

}  // namespace crossmesh
