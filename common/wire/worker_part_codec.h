#pragma once

#include "common/base/digest.h"
#include "common/plan/worker_part.h"
#include "crossmesh/v1/execution_service.pb.h"

#include <cstdint>
#include <memory>

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// A worker's part on the wire. Repeated numbers are packed arrays and mostly small differences: a
// part travels in pieces, and its size is what limits how fast an operation starts.
v1::WorkerPart ToProto(const WorkerPart& part);

// The part with the same digest. InvalidArgument, naming the array and what was expected: arrays
// that do not fit together, numbers out of range, and what TensorTable::Create and
// WorkerPart::Create refuse. Text that is short can stand for meshes that are long, so what it may
// grow to is limited as well: kPartSlotsMax, kPartTileChecksMax.
absl::StatusOr<WorkerPart> FromProto(const v1::WorkerPart& proto);

// The part in `bytes`, a serialized v1::WorkerPart. InvalidArgument: they are not one, or not the
// one of digest `expected`; what FromProto refuses.
absl::StatusOr<std::shared_ptr<const WorkerPart>> ParseWorkerPart(absl::string_view bytes,
                                                                  const Digest& expected);

// Slots of all placements of both sides.
inline constexpr int64_t kPartSlotsMax = int64_t{1} << 21;
// Slots of the placements of every group, summed over the groups.
inline constexpr int64_t kPartTileChecksMax = int64_t{1} << 26;

}  // namespace crossmesh
