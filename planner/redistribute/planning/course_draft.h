#pragma once

#include "common/plan/course.h"
#include "common/plan/tensor_table.h"
#include "planner/redistribute/derivation.h"
#include "planner/redistribute/planning/lowering.h"

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {

// The most of a chunk in a step of a course in host memory: an instance has little, and others
// overlap with it. By measurement (docs/benchmarks/collectives.md).
inline constexpr int64_t kStepChunkBytes = int64_t{1} << 20;

// What decides into how many instances a course is cut.
struct CourseSizes {
  // What the arrays of an instance take on a device, at most and nearly: so little that they stay
  // in caches, and so much that messages are worth their cost. Of more than four summands it is in
  // proportion to them, up to four times as much, where a summand would have less than a chunk.
  int64_t array_bytes = int64_t{4} << 20;
  // Less than that where it makes so many instances, but for arrays below a least size: until the
  // first one has gone through its first steps, and while the last one does the rest, NICs idle.
  int64_t instances = 16;
  int64_t array_bytes_min = int64_t{256} << 10;
  // Of a slab in a tile, at least: rows are copied one by one.
  int64_t row_elements = 64;
  // The same where tiles are released, so that most of a row is whole pages.
  int64_t released_row_elements = int64_t{64} << 10;
  // Instances that have arrays at a time, at most. Of three one is filled, one is read, and one
  // waits, so that no step waits for the one after it.
  int32_t buffers = 3;
  // No tensor is cut into slabs, and those take a course together whose steps are alike by the
  // collectives that they are (step_collective.h).
  bool whole_tensors = false;
};

// How the tensors of a group go from end to end.
struct GroupRoute {
  int32_t group = 0;  // of the request's table
  std::unique_ptr<const Derivation> derivation;
  std::unique_ptr<const Lowering> lowering;
  std::vector<int32_t> tensors = {};  // of the manifest
  // Of a tensor on the fullest device, that instances are to make small as well: of tiles that come
  // and go with them.
  int64_t tile_bytes = 0;

  int64_t array_bytes() const {
    return (lowering->array_bytes() + tile_bytes) * std::ssize(tensors);
  }
};

// A step before it is planned.
struct StepTable {
  const TensorTable& tensors() const { return *table; }
  std::shared_ptr<const TensorTable> table;
};

// Courses of all groups: those that take as many steps, and reduce in the same ones alike, take
// them together, in so many instances that arrays stay small. What cannot be dealt out to these has
// a course of one instance. InvalidArgument, ResourceExhausted: as Lowering::Steps. Cost: the
// tensors times the instances that are tried.
absl::StatusOr<std::vector<Course<StepTable>>> DraftCourses(
    const TensorTable& whole, std::span<const GroupRoute* const> routes, const CourseSizes& sizes);

// Courses of the least arrays that there are: one for each group, unless these are too many, in as
// many instances as it can be dealt out to, one at a time, or in one. Far slower than DraftCourses.
absl::StatusOr<std::vector<Course<StepTable>>> DraftLeastCourses(
    const TensorTable& whole, std::span<const GroupRoute* const> routes);

}  // namespace crossmesh
