#include "planner/redistribute/planning/testing/course_requests.h"

#include "common/base/check.h"
#include "common/mesh/gpu_host.h"
#include "planner/redistribute/atom_sizes.h"
#include "planner/redistribute/planning/group_routes.h"
#include "planner/redistribute/planning/plan_redistribution.h"
#include "planner/redistribute/testing/random_redistribution.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

namespace crossmesh {
namespace {

// The parts of all axes, as axes of a mesh.
class PartAxes {
 public:
  explicit PartAxes(const RedistributionRequest& request) {
    const AtomSizes sizes = NeededAtoms(request);
    for (size_t axis = 0; axis < sizes.size(); ++axis) {
      int64_t before = 1;
      for (const int64_t size : sizes[axis]) {
        parts_.push_back({.axis = static_cast<int32_t>(axis), .before = before, .size = size});
        before *= size;
      }
    }
  }

  std::vector<Axis> axes() const {
    std::vector<Axis> axes;
    for (size_t i = 0; i < parts_.size(); ++i) {
      axes.push_back({.name = Name(i), .size = parts_[i].size});
    }
    return axes;
  }
  void AppendNames(const SubAxis& part, std::vector<std::string>& names) const {
    for (size_t i = 0; i < parts_.size(); ++i) {
      const SubAxis& of_mesh = parts_[i];
      if (of_mesh.axis == part.axis && of_mesh.before >= part.before &&
          of_mesh.before < part.before * part.size) {
        names.push_back(Name(i));
      }
    }
  }
  Layout LayoutOf(const RedistributionEnd& end) const {
    AxisLayout layout{.rule = end.rule};
    for (const std::vector<SubAxis>& parts : end.dimensions) {
      std::vector<std::string>& names = layout.dimensions.emplace_back();
      for (const SubAxis& part : parts) AppendNames(part, names);
    }
    return Layout(std::move(layout));
  }
  std::vector<std::string> PartialOf(const RedistributionEnd& end) const {
    std::vector<std::string> names;
    for (const PartialAxis& partial : end.partial) AppendNames(partial.part, names);
    return names;
  }

 private:
  static std::string Name(size_t part) { return absl::StrCat("p", part); }

  std::vector<SubAxis> parts_;
};

// Appends tensors with the two layouts of a redistribution.
void AddTensors(const RedistributionRequest& redistribution, const CourseTensors& of,
                TensorTable::Spec& spec) {
  const PartAxes axes(redistribution);
  int64_t count = 1;
  for (const Axis& axis : redistribution.axes) count *= axis.size;
  std::vector<DeviceId> devices;
  for (int64_t i = 0; i < count; ++i) {
    devices.push_back({.host = absl::StrCat("h", i / of.devices_of_host),
                       .index = static_cast<int32_t>(i % of.devices_of_host)});
  }
  const auto mesh = Mesh::Create(axes.axes(), std::move(devices));
  CHECK_OK(mesh);
  const auto placement = static_cast<int32_t>(spec.sources.size());
  spec.sources.push_back({*mesh, axes.LayoutOf(redistribution.source)});
  spec.destinations.push_back({*mesh, axes.LayoutOf(redistribution.destination)});
  const auto group = static_cast<int32_t>(spec.groups.size());
  spec.groups.push_back({.shape = redistribution.shape,
                         .type = of.type,
                         .source = placement,
                         .destination = placement});
  spec.group_of_tensor.insert(spec.group_of_tensor.end(), of.tensors, group);
}

CourseRequest RedistributionOf(TensorTable::Spec spec) {
  auto table = TensorTable::Create(std::move(spec));
  CHECK_OK(table);
  CourseRequest made;
  made.request = {.tensors = std::make_shared<const TensorTable>(*std::move(table)),
                  .strategy = Strategy::kRedistribute};
  return made;
}

// Beside tensors of one shape as many of another one, with the same layouts.
void AddOthersTwiceAsLong(CourseRequest& made) {
  TensorTable::Spec spec = made.request.tensors->spec();
  TensorGroup longer = spec.groups.front();
  std::vector<int64_t> lengths;
  for (const int64_t length : longer.shape.lengths()) lengths.push_back(2 * length);
  longer.shape = *Shape::Create(lengths);
  spec.groups.push_back(std::move(longer));
  spec.group_of_tensor.insert(spec.group_of_tensor.end(), spec.group_of_tensor.size(), 1);
  auto table = TensorTable::Create(std::move(spec));
  CHECK_OK(table);
  made.request.tensors = std::make_shared<const TensorTable>(*std::move(table));
}

// With costs by which collectives are predicted to be faster than relays.
void PreferCollectives(CourseRequest& made) {
  PutOnGpus(made.request);
  made.request.no_broadcasts = true;
  made.request.no_collectives = false;
  GpuCosts costs;
  costs.group_ns.value = 100'000'000;
  made.request.topology =
      *Topology::Create(made.request.topology.hosts(), {}, Topology::kAssumedBytesPerSecond, costs);
  made.sizes = {.array_bytes = int64_t{1} << 30, .row_elements = 1};
}

// By a method of the literature, which takes more steps than the search, where it has an answer.
void UseMethod(std::string method, CourseRequest& made) {
  std::string& used = made.request.redistribution.method;
  used = std::move(method);
  if (!GroupRoutes::Find(made.request, RouteMedia::kMessages, NeverCancelled).ok()) used.clear();
}

constexpr const char* kEightGpus[] = {"a.0-7", "a.0-3,b.0-3", "a.0-1,b.0-1,c.0-1,d.0-1"};

}  // namespace

CourseRequest RequestOf(const RedistributionRequest& redistribution, const CourseTensors& tensors) {
  TensorTable::Spec spec;
  AddTensors(redistribution, tensors, spec);
  CourseRequest made = RedistributionOf(std::move(spec));
  RedistributionInputs& inputs = made.request.redistribution;
  const PartAxes axes(redistribution);
  inputs.source_partial = axes.PartialOf(redistribution.source);
  inputs.destination_partial = axes.PartialOf(redistribution.destination);
  for (const PartialAxis& axis : redistribution.source.partial) {
    inputs.reduction = std::string(PartialReductionName(axis.reduction));
  }
  return made;
}

void PutOnGpus(ReshardRequest& request) {
  auto hosts = GpuHosts("h100x8", request.tensors->hosts());
  CHECK_OK(hosts);
  request.topology = *std::move(hosts);
  request.no_collectives = true;
}

CourseRequest RandomCourseRequest(uint64_t seed, bool partial, const RandomCourseLimits& limits) {
  std::mt19937_64 random(seed);
  const auto one_in = [&](uint64_t n) { return random() % n == 0; };
  const auto draw = [&](uint64_t of) {
    return RandomRedistribution(
        of, {.devices_max = limits.devices_max, .partial = partial, .uneven = one_in(3)});
  };
  const auto drawn_tensors = [&] {
    constexpr DataType kTypes[] = {DataType::kF32, DataType::kI32, DataType::kBF16, DataType::kF64};
    return CourseTensors{
        .devices_of_host = static_cast<int64_t>(1 + random() % 4),
        .tensors = static_cast<int32_t>(1 + random() % 4),
        .type = limits.type.value_or(kTypes[random() % (partial ? 2 : std::size(kTypes))])};
  };
  RedistributionRequest drawn = draw(seed);
  const bool sums = partial && !one_in(4);
  while (sums && drawn.source.partial.empty()) drawn = draw(random());
  CourseRequest made = RequestOf(drawn, drawn_tensors());
  if (partial && one_in(3)) AddOthersTwiceAsLong(made);
  if (!partial && one_in(2)) {
    TensorTable::Spec spec;
    for (uint64_t i = 0; i < 2; ++i) {
      const RedistributionRequest of_mesh = draw(2 * seed + i);
      AddTensors(of_mesh, drawn_tensors(), spec);
    }
    made = RedistributionOf(std::move(spec));
  }
  if (limits.gpus) PutOnGpus(made.request);
  made.request.redistribution.objective = one_in(2) ? "time" : "bytes";
  // One move of all would mostly be as fast.
  made.request.redistribution.no_relays = !one_in(4);
  if (!sums && !one_in(4)) UseMethod(one_in(2) ? "one_axis" : "normal_form", made);
  made.sizes = {.array_bytes = one_in(2) ? 64 : int64_t{1} << 30, .row_elements = 1};
  return made;
}

void PutOnMixedHosts(ReshardRequest& request) {
  std::vector<Host> hosts;
  for (const std::string& name : request.tensors->hosts()) {
    Host& host =
        hosts.emplace_back(Host{.name = name, .nics = {{"n", 1'000'000'000, 1'000'000'000, 0, 0}}});
    if (name < "h4") host.gpus.push_back({0, "n", 2'000'000'000, 2'000'000'000, 4'000'000'000});
  }
  request.topology = *Topology::Create(std::move(hosts), {});
}

CourseRequest RandomMixedRequest(uint64_t seed, bool partial) {
  std::mt19937_64 random(seed);
  const auto one_in = [&](uint64_t n) { return random() % n == 0; };
  const bool has_replicas = !one_in(3);
  RedistributionRequest drawn = RandomRedistribution(
      seed,
      {.devices_max = has_replicas ? 4 : 12, .partial = partial, .uneven = partial && one_in(3)});
  if (has_replicas) drawn.axes.push_back({.name = "replica", .size = 2});
  constexpr DataType kTypes[] = {DataType::kF32, DataType::kI32, DataType::kBF16, DataType::kF64};
  CourseRequest made =
      RequestOf(drawn, {.devices_of_host = 2,
                        .tensors = static_cast<int32_t>(1 + random() % 3),
                        .type = kTypes[random() % (partial ? 2 : std::size(kTypes))]});
  PutOnMixedHosts(made.request);
  made.request.redistribution.objective = one_in(2) ? "time" : "bytes";
  // One move of all would often be predicted to be as fast.
  made.request.redistribution.no_relays = true;
  // And the search would mostly find one step.
  if (!partial) made.request.redistribution.method = one_in(2) ? "one_axis" : "normal_form";
  made.sizes = {.array_bytes = one_in(2) ? 64 : int64_t{1} << 30, .row_elements = 1};
  return made;
}

CourseRequest RandomCollectiveRequest(uint64_t seed, bool sums, std::optional<DataType> type) {
  std::mt19937_64 random(seed);
  constexpr const char* kMeshes[] = {"x=8", "x=2,y=4", "x=4,y=2", "x=2,y=2,z=2"};
  constexpr const char* kAxes[] = {"x", "x*y", "x*y", "x*y*z"};
  constexpr DataType kGathered[] = {DataType::kF32, DataType::kBF16, DataType::kU16,
                                    DataType::kF8E4M3, DataType::kI64};
  constexpr DataType kAdded[] = {DataType::kF32, DataType::kF64, DataType::kBF16, DataType::kF16,
                                 DataType::kI32, DataType::kU8,  DataType::kI64};
  constexpr DataType kWhole[] = {DataType::kI32, DataType::kU8, DataType::kI64, DataType::kU16};
  const size_t mesh_number = random() % std::size(kMeshes);
  const auto mesh = ParseMesh(
      absl::StrCat(kMeshes[mesh_number], " on ", kEightGpus[random() % std::size(kEightGpus)]));
  CHECK_OK(mesh);
  const std::string cut = absl::StrCat("[", kAxes[mesh_number], ", -]");
  const Placement whole{*mesh, *ParseLayout("[-, -]")};
  const Placement in_parts{*mesh, *ParseLayout(cut)};
  const bool in_pieces = random() % 2 == 0;
  // All sums cannot be made in parts where neither dimension has eight.
  const bool divides = !sums || in_pieces || random() % 3 > 0;
  // Some have pieces of several leaves.
  const uint64_t columns_max = !divides ? 7 : !sums && random() % 4 == 0 ? 2000 : 60;
  const auto rows = static_cast<int64_t>(divides ? 8 * (1 + random() % 12) : 1 + random() % 7);
  const auto columns = static_cast<int64_t>(1 + random() % columns_max);
  TensorTable::Spec spec{
      .sources = {sums ? whole : in_parts},
      .destinations = {sums && in_pieces ? in_parts : whole},
      .groups = {{.shape = *Shape::Create({{rows, columns}}),
                  .type = type.value_or(sums ? kAdded[random() % std::size(kAdded)]
                                             : kGathered[random() % std::size(kGathered)])}}};
  spec.group_of_tensor.assign(1 + random() % 3, 0);
  CourseRequest made = RedistributionOf(std::move(spec));
  RedistributionInputs& inputs = made.request.redistribution;
  if (sums) {
    for (const Axis& axis : mesh->axes()) inputs.source_partial.push_back(axis.name);
    // Means of whole numbers are not NCCL's.
    const bool is_whole = std::ranges::count(kWhole, made.request.tensors->groups()[0].type) > 0;
    inputs.reduction = !is_whole && random() % 4 == 0 ? "mean" : "sum";
    inputs.reduction_order = "any";
  }
  if (random() % 4 == 0) AddOthersTwiceAsLong(made);
  PreferCollectives(made);
  return made;
}

CourseRequest RandomGroupedRequest(uint64_t seed, bool sums) {
  std::mt19937_64 random(seed);
  const std::vector<std::string> sizes = random() % 2 == 0
                                             ? std::vector<std::string>{"x=2", "y=2", "z=2"}
                                             : std::vector<std::string>{"x=2", "y=4"};
  // Neither none of the axes nor all of them.
  const uint64_t gathered = 1 + random() % ((uint64_t{1} << sizes.size()) - 2);
  std::vector<std::string> axes;
  std::vector<std::string> others;
  for (size_t i = 0; i < sizes.size(); ++i) {
    (((gathered >> i) & 1) != 0 ? axes : others).push_back(sizes[i].substr(0, 1));
  }
  const std::string hosts = kEightGpus[random() % std::size(kEightGpus)];
  const auto mesh = ParseMesh(absl::StrCat(absl::StrJoin(sizes, ","), " on ", hosts));
  CHECK_OK(mesh);
  // Replicas on the other axes have the same pieces; summands are each of one device.
  const std::string kept = sums || random() % 3 > 0 ? absl::StrJoin(others, "*") : "-";
  const Placement whole{*mesh, *ParseLayout(absl::StrCat("[-, ", kept, "]"))};
  const Placement cut{*mesh,
                      *ParseLayout(absl::StrCat("[", absl::StrJoin(axes, "*"), ", ", kept, "]"))};
  const bool in_pieces = random() % 2 == 0;
  const Shape shape =
      *Shape::Create({{static_cast<int64_t>(8 * (1 + random() % 6)),
                       static_cast<int64_t>(8 * (1 + random() % (sums ? 6 : 200)))}});
  TensorTable::Spec spec{.sources = {sums ? whole : cut},
                         .destinations = {sums && in_pieces ? cut : whole},
                         .groups = {{.shape = shape, .type = DataType::kF32}}};
  spec.group_of_tensor.assign(1 + random() % 2, 0);
  if (!sums && random() % 2 == 0) {
    // Of half of the devices, whose gather leaves the others outside of its groups.
    const auto half = Mesh::Create({{"v", 2}, {"w", 2}},
                                   {mesh->devices().begin() + 2, mesh->devices().begin() + 6});
    CHECK_OK(half);
    spec.sources.push_back({*half, *ParseLayout("[w, v]")});
    spec.destinations.push_back({*half, *ParseLayout("[-, v]")});
    spec.groups.push_back({.shape = shape, .type = DataType::kBF16, .source = 1, .destination = 1});
    spec.group_of_tensor.push_back(1);
  }
  CourseRequest made = RedistributionOf(std::move(spec));
  if (sums) {
    RedistributionInputs& inputs = made.request.redistribution;
    inputs.source_partial = axes;
    inputs.reduction = random() % 3 == 0 ? "mean" : "sum";
    inputs.reduction_order = "any";
  }
  PreferCollectives(made);
  return made;
}

CourseRequest TwoLevelSums(bool in_pieces) {
  const auto mesh = ParseMesh("x=2,y=4 on a.0-3,b.0-3");
  CHECK_OK(mesh);
  TensorTable::Spec spec{.sources = {{*mesh, *ParseLayout("[-, -]")}},
                         .destinations = {{*mesh, *ParseLayout(in_pieces ? "[x*y, -]" : "[-, -]")}},
                         .groups = {{.shape = *Shape::Create({{24, 40}}), .type = DataType::kF32}}};
  spec.group_of_tensor = {0, 0};
  CourseRequest made = RedistributionOf(std::move(spec));
  RedistributionInputs& inputs = made.request.redistribution;
  inputs.source_partial = {"x", "y"};
  inputs.reduction = "sum";
  inputs.reduction_order = "any";
  inputs.method = "dtensor_greedy";
  PreferCollectives(made);
  return made;
}

CourseRequest RandomSumRingRequest(uint64_t seed) {
  std::mt19937_64 random(seed);
  constexpr const char* kMeshes[] = {"x=3", "x=4", "x=2,y=2", "x=5", "x=2,y=3", "x=3,y=2"};
  constexpr const char* kHosts[] = {
      "a.0,b.0,c.0",         "a.0,b.0,c.0,d.0",         "b.0,d.0,a.0,c.0",
      "a.0,b.0,c.0,d.0,e.0", "a.0,b.0,c.0,d.0,e.0,f.0", "f.0,a.0,e.0,b.0,c.0,d.0"};
  constexpr DataType kTypes[] = {DataType::kF32, DataType::kF64, DataType::kI32, DataType::kU8,
                                 DataType::kBF16};
  constexpr const char* kReductions[] = {"sum", "mean", "min", "max"};
  const size_t number = random() % std::size(kMeshes);
  const auto mesh = ParseMesh(absl::StrCat(kMeshes[number], " on ", kHosts[number]));
  CHECK_OK(mesh);
  std::vector<std::string> axes;
  for (const Axis& axis : mesh->axes()) axes.push_back(axis.name);
  // In parts along one of the dimensions, which then divides.
  const size_t rank = 1 + random() % 3;
  const size_t cut = random() % rank;
  std::vector<std::string> cuts(rank, "-");
  const std::string whole = absl::StrCat("[", absl::StrJoin(cuts, ", "), "]");
  if (random() % 2 == 0) cuts[cut] = absl::StrJoin(axes, "*");
  TensorTable::Spec spec{
      .sources = {{*mesh, *ParseLayout(whole)}},
      .destinations = {{*mesh, *ParseLayout(absl::StrCat("[", absl::StrJoin(cuts, ", "), "]"))}}};
  const DataType type = kTypes[random() % std::size(kTypes)];
  const auto groups = static_cast<int32_t>(1 + random() % 2);
  for (int32_t group = 0; group < groups; ++group) {
    std::vector<int64_t> lengths;
    for (size_t d = 0; d < rank; ++d) {
      lengths.push_back(static_cast<int64_t>((d == cut ? mesh->slots() : 1) * (1 + random() % 9)));
    }
    spec.groups.push_back({.shape = *Shape::Create(lengths), .type = type});
    spec.group_of_tensor.insert(spec.group_of_tensor.end(), 1 + random() % 2, group);
  }
  CourseRequest made = RedistributionOf(std::move(spec));
  made.request.redistribution.source_partial = std::move(axes);
  made.request.redistribution.reduction = kReductions[random() % std::size(kReductions)];
  std::vector<Host> hosts;
  for (const std::string& name : made.request.tensors->hosts()) {
    hosts.push_back({.name = name, .nics = {{"n", 1000, 1000, 0, 0}}});
  }
  made.request.topology = *Topology::Create(std::move(hosts), {});
  made.sizes = {.array_bytes = random() % 2 == 0 ? 64 : int64_t{1} << 30, .row_elements = 1};
  return made;
}

absl::StatusOr<Plan> PlanOf(const CourseRequest& request) {
  return PlanRedistribution(request.request, NeverCancelled, request.sizes);
}

}  // namespace crossmesh
