#include "worker/courses/course_places.h"

#include "common/base/check.h"
#include "worker/executor/prepared_part.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace crossmesh {
namespace {

// Of shorter runs it costs more to add them one by one than to copy them before.
constexpr int64_t kOwnRunBytesMin = 256;

CourseTables TablesOf(const Course<WorkerPart>& course, CourseRunner runner) {
  const CourseTables tables(course);
  return runner == CourseRunner::kGpu ? tables : tables.WithoutCollectives();
}

// Can what the course's first step would copy of a tensor within a device be read where it is?
bool CanLeaveOwn(const TensorTable& first, int32_t tensor, DeviceRank device) {
  const int32_t group = first.group_of_tensor()[tensor];
  if (first.TileOf(Side::kSource, group, device).empty() ||
      first.TileOf(Side::kDestination, group, device).empty()) {
    return true;
  }
  if (first.groups()[group].sent_as.has_value()) return false;
  const std::optional<OwnSummand> runs = FindOwnSummand(first, first, tensor, device);
  return runs.has_value() && runs->run_bytes >= kOwnRunBytesMin &&
         FindOwnIndex(first, tensor, device).has_value();
}

// Does the source stay as it is until the first step has been reduced?
bool SourceStays(const WorkerPart& part, const Course<WorkerPart>& course) {
  const bool is_overwritten =
      part.spec().binding == BindingMode::kInPlace && part.spec().shared_storage;
  return !course.releases_source && !is_overwritten;
}

}  // namespace

int64_t ArrayBytesOf(const WorkerPart& part, const DeviceId& device, CourseRunner runner) {
  int64_t bytes = 0;
  for (const Course<WorkerPart>& course : part.courses()) {
    bytes = std::max(bytes, CourseMemory(TablesOf(course, runner), device).bytes());
  }
  return bytes;
}

CoursePlaces::CoursePlaces(const TaskSpec& task, const Course<WorkerPart>& course,
                           ArraysOf arrays_of, CourseRunner runner)
    : task_(task), course_(course) {
  const CourseTables tables = TablesOf(course, runner);
  const WorkerPart& part = task.part->part();
  for (const DeviceRank device : part.spec().devices) {
    const DeviceId& name = part.tensors().devices()[device];
    const std::optional<DeviceRank> rank = table(0).FindDevice(name);
    if (!rank.has_value()) continue;
    devices_.push_back({.whole = device,
                        .rank = *rank,
                        .arrays = CourseMemory(tables, name),
                        .memory = arrays_of(name)});
  }
  leaves_own_ = runner == CourseRunner::kHost && reduces(0) && !course.steps.front().adds_own &&
                SourceStays(part, course) && CanLeaveAllOwn();
}

bool CoursePlaces::CanLeaveAllOwn() const {
  return std::ranges::all_of(devices_, [this](const Device& device) {
    for (int32_t tensor = 0; tensor < course_.tensors_of_instance(); ++tensor) {
      if (!CanLeaveOwn(table(0), tensor, device.rank)) return false;
    }
    return true;
  });
}

std::byte* CoursePlaces::InArray(const Device& device, CourseProgress::At at,
                                 CourseMemory::Array array, int32_t tensor) const {
  const StorageLayout* const layout = device.arrays.Find(at.step, array);
  if (layout == nullptr || layout->offset_of_tensor[tensor] < 0) return nullptr;
  return device.memory + device.arrays.buffer_bytes() * (at.instance % course_.buffers) +
         layout->offset_of_tensor[tensor];
}

std::byte* CoursePlaces::InTile(const Device& device, CourseProgress::At at, Side side,
                                int32_t tensor) const {
  const auto& tiles = side == Side::kSource ? task_.sources : task_.destinations;
  const auto found = tiles.find(device.whole);
  if (found == tiles.end()) return nullptr;
  const int32_t of_manifest =
      course_.tensors[int64_t{at.instance} * course_.tensors_of_instance() + tensor];
  std::byte* const tile = found->second.tensor[of_manifest];
  if (tile == nullptr) return nullptr;
  const TensorTable& of_step = table(at.step);
  const int32_t group = of_step.group_of_tensor()[tensor];
  const int64_t slab = at.instance % of_step.groups()[group].slab.slabs;
  return tile + slab * RowsOf(of_step, side, group, device.rank).row_bytes;
}

std::byte* CoursePlaces::Place(const Device& device, CourseProgress::At at, Side side,
                               int32_t tensor) const {
  const bool is_last = at.step + 1 == std::ssize(course_.steps);
  if (side == Side::kDestination) {
    return is_last && !reduces(at.step) ? InTile(device, at, side, tensor)
                                        : InArray(device, at, CourseMemory::Array::kMoved, tensor);
  }
  if (at.step == 0) return InTile(device, at, side, tensor);
  const CourseProgress::At before{.step = at.step - 1, .instance = at.instance};
  return InArray(device, before,
                 reduces(before.step) ? CourseMemory::Array::kReduced : CourseMemory::Array::kMoved,
                 tensor);
}

absl::flat_hash_map<DeviceRank, BoundTiles> CoursePlaces::Of(CourseProgress::At at,
                                                             Side side) const {
  absl::flat_hash_map<DeviceRank, BoundTiles> bound;
  for (const Device& device : devices_) {
    BoundTiles tiles;
    for (int32_t tensor = 0; tensor < course_.tensors_of_instance(); ++tensor) {
      tiles.tensor.push_back(Place(device, at, side, tensor));
    }
    bound.emplace(device.rank, std::move(tiles));
  }
  return bound;
}

// Where the instance's part of the source tile has it.
CoursePlaces::Reducing::Own CoursePlaces::OwnOf(const Device& device, CourseProgress::At at,
                                                int32_t tensor) const {
  const bool adds_own = course_.steps[at.step].adds_own;
  if (!adds_own && !LeavesOwn(at.step)) return {};
  const std::optional<OwnSummand> runs =
      FindOwnSummand(table(0), table(at.step), tensor, device.rank);
  // What has come is the sum that it is added to.
  const std::optional<int64_t> index = adds_own ? 1 : FindOwnIndex(table(0), tensor, device.rank);
  if (!runs.has_value() || !index.has_value()) {
    CHECK(!adds_own);  // as the part's proof has shown
    return {};
  }
  const std::byte* const tile =
      InTile(device, {.step = 0, .instance = at.instance}, Side::kSource, tensor);
  return {.first = tile + runs->first, .runs = *runs, .index = *index};
}

std::vector<CoursePlaces::Reducing> CoursePlaces::ReducingOf(CourseProgress::At at) const {
  std::vector<Reducing> all;
  const TensorTable& of_step = table(at.step);
  const bool is_last = at.step + 1 == std::ssize(course_.steps);
  for (const Device& device : devices_) {
    for (int32_t tensor = 0; tensor < course_.tensors_of_instance(); ++tensor) {
      const int32_t group = of_step.group_of_tensor()[tensor];
      const TileRows rows = RowsOf(of_step, Side::kDestination, group, device.rank);
      if (rows.bytes == 0) continue;
      const TensorGroup& of_group = of_step.groups()[group];
      all.push_back({.type = of_group.type,
                     .summands = {.first = InArray(device, at, CourseMemory::Array::kMoved, tensor),
                                  .distance_bytes = rows.bytes,
                                  .count = rows.summands},
                     .out = is_last ? InTile(device, at, Side::kDestination, tensor)
                                    : InArray(device, at, CourseMemory::Array::kReduced, tensor),
                     .out_pitch = rows.row_bytes * (is_last ? of_group.slab.slabs : 1),
                     .rows = rows,
                     .own = OwnOf(device, at, tensor)});
      if (course_.steps[at.step].adds_own) ++all.back().summands.count;
    }
  }
  return all;
}

std::vector<RowsInTile> CoursePlaces::SourceRowsOf(int32_t instance) const {
  std::vector<RowsInTile> all;
  for (const Device& device : devices_) {
    for (int32_t tensor = 0; tensor < course_.tensors_of_instance(); ++tensor) {
      std::byte* const first =
          InTile(device, {.step = 0, .instance = instance}, Side::kSource, tensor);
      if (first == nullptr) continue;
      const int32_t group = table(0).group_of_tensor()[tensor];
      const TileRows rows = RowsOf(table(0), Side::kSource, group, device.rank);
      all.push_back({.device = device.whole,
                     .first = first,
                     .row_bytes = rows.row_bytes,
                     .pitch = rows.row_bytes * table(0).groups()[group].slab.slabs,
                     .rows = rows.rows()});
    }
  }
  return all;
}

}  // namespace crossmesh
