#include "common/plan/plan_memory.h"

#include "common/base/heap_bytes.h"
#include "common/mesh/layout.h"
#include "common/plan/course.h"
#include "common/plan/slicing.h"
#include "common/plan/tensor_table.h"

#include <bit>
#include <cstddef>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace crossmesh {
namespace {

// Of what a plan is made of. All members see each other, so that vectors may be of any of them.
struct Keeps {
  template <typename T>
  static int64_t Of(const std::vector<T>& values) {
    int64_t bytes = ArrayBytes(values);
    if constexpr (!std::is_trivially_destructible_v<T>) {
      for (const T& value : values) bytes += Of(value);
    }
    return bytes;
  }
  static int64_t Of(const std::string& text) { return HeapBytes(text); }
  static int64_t Of(const Shape& shape) {
    return shape.rank() <= 4 ? 0 : AllocationBytes(shape.rank() * sizeof(int64_t));
  }
  static int64_t Of(const Box& box) {
    const auto& intervals = box.intervals();
    return intervals.capacity() <= 4 ? 0 : AllocationBytes(intervals.capacity() * sizeof(Interval));
  }
  static int64_t Of(const DeviceId& device) { return Of(device.host); }
  static int64_t Of(const Axis& axis) { return Of(axis.name); }
  static int64_t Of(const Mesh& mesh) {
    return Of(mesh.axes()) + AllocationBytes(mesh.axes().size() * sizeof(int64_t)) +
           Of(mesh.devices());
  }
  static int64_t Of(const Layout& layout) {
    return layout.axes() != nullptr ? Of(layout.axes()->dimensions) : Of(layout.tiles()->slots);
  }
  static int64_t Of(const Placement& placement) {
    return Of(placement.mesh) + Of(placement.layout);
  }
  static int64_t Of(const TensorGroup& group) { return Of(group.shape); }
  static int64_t Of(const TensorTable& tensors);
  static int64_t Of(const GroupGrid& grid) {
    return Of(grid.cuts) + Of(grid.class_of_cell) + Of(grid.classes) + Of(grid.first) +
           Of(grid.cells) + Of(grid.bytes);
  }
  static int64_t Of(const Slicing& slicing) {
    int64_t bytes = AllocationBytes(sizeof(Slicing)) + slicing.heap_bytes_of_sets() +
                    Of(slicing.classes()) + AllocationBytes(slicing.grids() * sizeof(GroupGrid));
    for (int32_t group = 0; group < slicing.grids(); ++group) bytes += Of(slicing.grid(group));
    return bytes;
  }
  static int64_t Of(const PortPrice& price) { return Of(price.name); }
  static int64_t Of(const BroadcastFigures& figures) { return Of(figures.devices); }
  static int64_t Of(const PlanFigures& figures) {
    return Of(figures.strategy) + Of(figures.bound.proof) + Of(figures.busiest_host) +
           Of(figures.search) + Of(figures.broadcasts) +
           (figures.m2n.has_value() ? Of(figures.m2n->refusal) : 0);
  }
  static int64_t Of(const Nic& nic) { return Of(nic.name); }
  static int64_t Of(const Host& host) { return Of(host.name) + Of(host.nics); }
  static int64_t Of(const Rack& rack) { return Of(rack.name) + Of(rack.hosts); }
  static int64_t Of(const TensorSpec& tensor) { return Of(tensor.name) + Of(tensor.shape); }
};

// Of an index by names, beside the names, which is not seen from here: it is full at seven eighths
// of a power of two, and has one place less than that.
template <typename Value>
int64_t IndexBytes(size_t names) {
  if (names == 0) return 0;
  const size_t places = std::bit_ceil((names * 8 + 6) / 7) - 1;
  return AllocationBytes(places * (sizeof(std::pair<std::string, Value>) + 1) + 24);
}

int64_t Keeps::Of(const TensorTable& tensors) {
  const TensorTable::Spec& spec = tensors.spec();
  int64_t bytes = AllocationBytes(sizeof(TensorTable)) + Of(spec.sources) + Of(spec.destinations) +
                  Of(spec.groups) + Of(spec.group_of_tensor) + Of(spec.scaled_tensors) +
                  Of(spec.replica_axes) + Of(spec.names) + Of(tensors.devices()) +
                  Of(tensors.hosts()) + Of(tensors.conversions());
  // By device: its host and its replica; by group: its tensors, its conversion, and a bit.
  bytes += 2 * AllocationBytes(tensors.devices().size() * sizeof(int32_t));
  const size_t groups = spec.groups.size();
  bytes += AllocationBytes(groups * sizeof(int64_t)) +
           AllocationBytes(groups * sizeof(ConversionIndex)) + AllocationBytes(groups / 8 + 1);
  // By slot: its rank, and the slot of the rank.
  for (const Side side : {Side::kSource, Side::kDestination}) {
    for (size_t p = 0; p < tensors.placements(side).size(); ++p) {
      const std::vector<DeviceRank>& slots = tensors.slots(side, static_cast<int32_t>(p));
      bytes += sizeof(slots) + Of(slots) + sizeof(slots) +
               AllocationBytes(slots.size() * sizeof(std::pair<DeviceRank, int32_t>));
    }
  }
  return bytes;
}

}  // namespace

namespace {

template <typename Move>
int64_t BytesOfCourses(const std::vector<Course<Move>>& courses) {
  int64_t bytes = ArrayBytes(courses);
  for (const Course<Move>& course : courses) {
    bytes += ArrayBytes(course.tensors) + ArrayBytes(course.steps);
    for (const auto& step : course.steps) {
      bytes += AllocationBytes(sizeof(Move)) + HeapBytes(*step.move);
    }
  }
  return bytes;
}

}  // namespace

int64_t HeapBytes(const Plan& plan) {
  const Plan::Spec& spec = plan.spec();
  return Keeps::Of(plan.tensors()) + Keeps::Of(plan.slicing()) + HeapBytes(spec.relays) +
         HeapBytes(spec.hops) + HeapBytes(spec.copies) + spec.broadcast_groups.heap_bytes() +
         BytesOfCourses(plan.courses()) + Keeps::Of(spec.figures);
}

int64_t HeapBytes(const WorkerPart& part) {
  const WorkerPart::Spec& spec = part.spec();
  return HeapBytes(spec.devices) + spec.device_sets.heap_bytes() + HeapBytes(spec.class_sets) +
         HeapBytes(spec.relays) + HeapBytes(spec.hops) + HeapBytes(spec.copies) +
         HeapBytes(spec.broadcast_groups) + BytesOfCourses(part.courses());
}

int64_t HeapBytes(const Mesh& mesh) { return Keeps::Of(mesh); }

int64_t HeapBytes(const Topology& topology) {
  int64_t bytes = Keeps::Of(topology.hosts()) + Keeps::Of(topology.racks()) +
                  IndexBytes<int>(topology.hosts().size());
  for (const Host& host : topology.hosts()) bytes += HeapBytes(host.name);
  size_t in_racks = 0;
  for (const Rack& rack : topology.racks()) {
    in_racks += rack.hosts.size();
    for (const std::string& host : rack.hosts) bytes += HeapBytes(host);
  }
  return bytes + IndexBytes<int>(in_racks);
}

int64_t HeapBytes(const Manifest& manifest) {
  int64_t bytes = Keeps::Of(manifest.tensors()) + IndexBytes<int64_t>(manifest.tensors().size());
  for (const TensorSpec& tensor : manifest.tensors()) bytes += HeapBytes(tensor.name);
  return bytes;
}

}  // namespace crossmesh
