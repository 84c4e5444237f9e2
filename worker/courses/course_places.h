#pragma once

#include "common/mesh/device.h"
#include "common/numbers/element_reducer.h"
#include "common/plan/course_tables.h"
#include "common/plan/own_summand.h"
#include "common/plan/worker_part.h"
#include "worker/courses/course_progress.h"
#include "worker/courses/tile_release.h"
#include "worker/executor/task.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include <absl/container/flat_hash_map.h>
#include <absl/functional/function_ref.h>

namespace crossmesh {

// Who carries out a course: GPUs call collectives where a step says so, and need no summands there.
enum class CourseRunner : uint8_t { kHost, kGpu };

// What the courses of a part have on one of its devices between their steps; one course after the
// other uses it. Cost: the tensors of all steps.
int64_t ArrayBytesOf(const WorkerPart& part, const DeviceId& device, CourseRunner runner);

// Where the steps of one course read and write, instance by instance. Follows no address, so these
// may be a GPU's. Refers to the task and the course.
class CoursePlaces {
 public:
  // Where what a device has between steps begins; null: it has nothing there.
  using ArraysOf = absl::FunctionRef<std::byte*(const DeviceId&)>;

  // `task` has the tiles of the whole part.
  CoursePlaces(const TaskSpec& task, const Course<WorkerPart>& course, ArraysOf arrays_of,
               CourseRunner runner);

  // Of this worker's devices, by their ranks in the step's table.
  absl::flat_hash_map<DeviceRank, BoundTiles> Of(CourseProgress::At at, Side side) const;

  // The summands that a step has brought for one tensor on one device, and where they go. Their
  // place is null where a collective adds them.
  struct Reducing {
    // The device's own summand, where it is read in the source tile: from where `runs` has its
    // first byte. Null: it has come as all others have.
    struct Own {
      const std::byte* first = nullptr;
      OwnSummand runs;
      int64_t index = 0;  // of the summands
    };

    DataType type = DataType::kF32;
    Summands summands;  // of all rows
    std::byte* out = nullptr;
    int64_t out_pitch = 0;  // bytes from a row to the next
    TileRows rows;
    Own own;
  };
  std::vector<Reducing> ReducingOf(CourseProgress::At at) const;
  // Are the summands that devices have themselves read there, and so not to be copied beside those
  // that the step brings?
  bool LeavesOwn(int32_t step) const { return step == 0 && leaves_own_; }

  // What an instance reads of source tiles.
  std::vector<RowsInTile> SourceRowsOf(int32_t instance) const;

 private:
  struct Device {
    DeviceRank whole = 0;  // rank in the whole part's table
    DeviceRank rank = 0;   // in the steps'
    CourseMemory arrays;
    std::byte* memory = nullptr;  // of the arrays
  };

  std::byte* InArray(const Device& device, CourseProgress::At at, CourseMemory::Array array,
                     int32_t tensor) const;
  std::byte* InTile(const Device& device, CourseProgress::At at, Side side, int32_t tensor) const;
  std::byte* Place(const Device& device, CourseProgress::At at, Side side, int32_t tensor) const;
  bool CanLeaveAllOwn() const;
  Reducing::Own OwnOf(const Device& device, CourseProgress::At at, int32_t tensor) const;
  const TensorTable& table(int32_t step) const { return course_.steps[step].move->tensors(); }
  bool reduces(int32_t step) const { return course_.steps[step].reduction.has_value(); }

  const TaskSpec& task_;
  const Course<WorkerPart>& course_;
  std::vector<Device> devices_;
  bool leaves_own_ = false;
};

}  // namespace crossmesh
