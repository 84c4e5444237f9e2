#pragma once

#include "common/base/byte_count.h"
#include "common/mesh/device.h"
#include "common/numbers/element_reducer.h"
#include "common/plan/course_tables.h"
#include "common/plan/worker_part.h"
#include "worker/courses/course_progress.h"
#include "worker/executor/task.h"
#include "worker/memory/arena.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <absl/container/btree_map.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// Makes memory of the host for what a device of this worker has between steps.
using MakeArrayMemory =
    std::function<absl::StatusOr<std::shared_ptr<Arena>>(const DeviceId&, ByteCount)>;

// What the courses of a task have between their steps on this worker's devices; one course after
// the other uses it.
class ArrayMemory {
 public:
  // ResourceExhausted: what `make` says, with the device.
  static absl::StatusOr<ArrayMemory> Create(const WorkerPart& part, const MakeArrayMemory& make);

  // None where no course has arrays on the device.
  std::byte* of(const DeviceId& device) const;
  int64_t bytes() const;

 private:
  absl::btree_map<DeviceId, std::shared_ptr<Arena>> arenas_;
};

// Where the steps of one course read and write, instance by instance. Refers to its arguments.
class CoursePlaces {
 public:
  // `task` has the tiles of the whole part.
  CoursePlaces(const TaskSpec& task, const Course<WorkerPart>& course, const ArrayMemory& memory);

  // Of this worker's devices, by their ranks in the step's table.
  absl::flat_hash_map<DeviceRank, BoundTiles> Of(CourseProgress::At at, Side side) const;

  // The summands that a step has brought for one tensor on one device, and where they go.
  struct Reducing {
    DataType type = DataType::kF32;
    Summands summands;  // of all rows
    std::byte* out = nullptr;
    int64_t out_pitch = 0;  // bytes from a row to the next
    TileRows rows;
  };
  std::vector<Reducing> ReducingOf(CourseProgress::At at) const;

 private:
  struct Device {
    DeviceRank whole = 0;  // rank in the whole part's table
    DeviceRank rank = 0;   // in the steps'
    CourseMemory arrays;
    std::byte* memory = nullptr;
  };

  std::byte* InArray(const Device& device, CourseProgress::At at, CourseMemory::Array array,
                     int32_t tensor) const;
  std::byte* InTile(const Device& device, CourseProgress::At at, Side side, int32_t tensor) const;
  std::byte* Place(const Device& device, CourseProgress::At at, Side side, int32_t tensor) const;
  const TensorTable& table(int32_t step) const { return course_.steps[step].move->tensors(); }
  bool reduces(int32_t step) const { return course_.steps[step].reduction.has_value(); }

  const TaskSpec& task_;
  const Course<WorkerPart>& course_;
  std::vector<Device> devices_;
};

}  // namespace crossmesh
