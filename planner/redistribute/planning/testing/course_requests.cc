#include "planner/redistribute/planning/testing/course_requests.h"

#include "common/base/check.h"
#include "common/mesh/gpu_host.h"
#include "planner/redistribute/atom_sizes.h"
#include "planner/redistribute/planning/plan_redistribution.h"
#include "planner/redistribute/testing/random_redistribution.h"

#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>

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
  Layout LayoutOf(const RedistributionEnd& end, UnevenRule rule) const {
    AxisLayout layout{.rule = rule};
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
  spec.sources.push_back({*mesh, axes.LayoutOf(redistribution.source, redistribution.rule)});
  spec.destinations.push_back(
      {*mesh, axes.LayoutOf(redistribution.destination, redistribution.rule)});
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
  const RedistributionRequest drawn = draw(seed);
  CourseRequest made = RequestOf(drawn, drawn_tensors());
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
  made.request.redistribution.no_relays = one_in(2);
  made.sizes = {.array_bytes = one_in(2) ? 64 : int64_t{1} << 30, .row_elements = 1};
  return made;
}

absl::StatusOr<Plan> PlanOf(const CourseRequest& request) {
  return PlanRedistribution(request.request, NeverCancelled, request.sizes);
}

}  // namespace crossmesh
