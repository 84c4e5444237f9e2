#pragma once

#include "common/mesh/reduction.h"
#include "common/plan/course.h"
#include "common/plan/indices.h"
#include "common/plan/step_collective.h"
#include "common/plan/storage_layout.h"
#include "common/plan/tensor_table.h"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <absl/status/status.h>

namespace crossmesh {

// What a course says, whatever its steps move by. Refers to it.
struct CourseTables {
  template <typename Move>
  explicit CourseTables(const Course<Move>& course)
      : instances(course.instances),
        buffers(course.buffers),
        tensors(course.tensors),
        releases_source(course.releases_source) {
    for (const auto& step : course.steps) {
      steps.push_back({&step.move->tensors(), step.reduction, step.collective, step.adds_own});
    }
  }

  // As host memory has it: with arrays of all summands.
  CourseTables WithoutCollectives() const {
    CourseTables without = *this;
    for (Step& step : without.steps) step.collective.reset();
    return without;
  }

  struct Step {
    const TensorTable* table;
    std::optional<Reduction> reduction;
    std::optional<StepCollective> collective;
    bool adds_own = false;
  };
  int32_t instances;
  int32_t buffers;
  std::span<const int32_t> tensors;
  bool releases_source;
  std::vector<Step> steps;
};

// Proves that courses do what they are for: together they take each tensor of the manifest, every
// slab of it once; the first step of a course reads what source tiles hold, the last one fills what
// destination tiles hold, and each step reads what the one before it left, element for element on
// every device; reductions are of numbers, over summands that are all there, in one step or round a
// ring (own_summand.h); a step for which there is a collective is one. That a step moves what it
// says is its plan's proof. `devices` of `whole`, ascending; empty: all. InvalidArgument names the
// course, step, tensor and device. Cost: groups of the steps times devices, and the tensors.
absl::Status ProveCourses(const TensorTable& whole, std::span<const CourseTables> courses,
                          std::span<const DeviceRank> devices = {});

// The arrays of a device between the steps of a course, in one piece of memory. Of a course with
// one instance, an array takes the place of the one before the one that it is filled from.
class CourseMemory {
 public:
  // Of no device: of a course whose steps' tables do not have it.
  CourseMemory(const CourseTables& course, const DeviceId& device);

  int64_t bytes() const { return bytes_; }
  // What a step's move brings, where that is not destination tiles, and not summands that a
  // collective reads where they are; what its reduction leaves, likewise. Null where there is none.
  // Offsets of tensors are those from the memory's beginning.
  enum class Array : uint8_t { kMoved, kReduced };
  const StorageLayout* Find(int32_t step, Array array) const;
  // What the instances of a buffer lie behind those of the one before.
  int64_t buffer_bytes() const { return buffer_bytes_; }

 private:
  std::vector<std::optional<StorageLayout>> arrays_;  // [step][array]
  int64_t buffer_bytes_ = 0;
  int64_t bytes_ = 0;
};

// A device's tile of a tensor of `group` on one side: how many summands it has, the bytes of one,
// and those of its rows, which lie apart where the tile is one of several slabs.
struct TileRows {
  int64_t summands = 1;
  int64_t bytes = 0;
  int64_t row_bytes = 0;
  int64_t rows() const { return row_bytes == 0 ? 0 : bytes / row_bytes; }
};
TileRows RowsOf(const TensorTable& table, Side side, int32_t group, DeviceRank device);

}  // namespace crossmesh
