#pragma once

#include "common/mesh/device.h"
#include "common/plan/course_tables.h"
#include "common/plan/plan.h"
#include "common/plan/storage_layout.h"
#include "common/plan/tensor_table.h"

#include <cstdint>
#include <span>

#include <absl/status/status.h>

namespace crossmesh {

// Memory is given back, and taken, by pages of so many bytes.
inline constexpr int64_t kPageBytes = 4096;

// The most that a device has at once of its source tiles, its destination tiles and the arrays
// between them, when courses that release the source run one after the other: whole pages of source
// tiles are there until the instance that reads them has moved its first step, pages of destination
// tiles from when the first instance begins to fill them. Where several instances may fill
// destination tiles while none has released its source yet, as in a course of one step, all of
// these count. Cost: tensors times their slabs, and rows of at least a page.
int64_t ReleasingPeakBytes(const TensorTable& whole, std::span<const CourseTables> courses,
                           const DeviceId& device);

// Whether courses release the source: all, or none.
bool ReleasesSource(std::span<const CourseTables> courses);

// FailedPrecondition when courses release a source that is to stay: under shadow, or where it is
// the destination's storage; Internal when only some do.
absl::Status ProveReleasing(std::span<const CourseTables> courses, BindingMode binding,
                            bool shared_storage);

// Of rows of a tile, each so many bytes, that begin at so many bytes behind each other.
struct PageRows {
  int64_t begin = 0;  // in its arena, which begins with a page
  int64_t row_bytes = 0;
  int64_t pitch = 0;
  int64_t rows = 0;

  // Bytes of whole pages inside the rows at least, and of all pages that they touch at most.
  int64_t inside() const;
  int64_t touched() const;
};

}  // namespace crossmesh
