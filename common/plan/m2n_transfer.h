#pragma once

#include "common/plan/indices.h"

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {

class TensorTable;

// One side of a tensor as NCCL M2N has it described (ncclMesh_t, ncclDistTensor_t of nccl_m2n.h,
// API version 2). Ranks are DeviceRanks: its communicator is of all devices of a table, in order.
struct M2nSide {
  static constexpr int32_t kReplicate = -1;  // NCCL_RESHARD_REPLICATE

  // One or two axes over the ranks from first_rank on, the last axis running fastest.
  std::vector<int64_t> mesh;
  std::vector<int32_t> placements;  // by axis: the dimension that it cuts, or kReplicate
  DeviceRank first_rank = 0;
  std::vector<int64_t> local_shape;  // of every rank's tile

  int64_t ranks() const;
  int64_t parts() const;  // into which the tensor is cut; 1 where all ranks have all of it
  // Which of the parts this rank of the interval has.
  int64_t PartOf(DeviceRank rank) const;

  friend bool operator==(const M2nSide&, const M2nSide&) = default;
};

// "mesh [2, 2] from rank 0, placements [-, 0], tiles [4, 6]"
std::string ToString(const M2nSide& side);
inline std::ostream& operator<<(std::ostream& out, const M2nSide& s) { return out << ToString(s); }

// What one call of ncclReshard is told of a tensor, with one to three dimensions: those of the
// tensor that no cut parts are joined.
struct M2nTransfer {
  // Of one destination part and of one source part, in ncclReshard: reshard_limits.h, for the way
  // that every communicator can go.
  static constexpr int64_t kSourcePartsMax = 16;
  static constexpr int64_t kDestinationPartsMax = 64;
  // A tile is packed in a buffer that has this by default (NCCL_RESHARD_PACK_BUFFSIZES).
  static constexpr int64_t kTileBytesMax = int64_t{1} << 31;

  M2nSide source;
  M2nSide destination;
  friend bool operator==(const M2nTransfer&, const M2nTransfer&) = default;
};

// How NCCL M2N is asked to move the tensors of a group, each by a call of its own: so that it reads
// from every source slot and writes to every destination slot the tile that the table says, all of
// it, in the order of its memory.
//
// InvalidArgument where it cannot be asked; the message names the tensor, the side, what M2N
// expects and what was found: conversions and scales; tensors without elements; tiles of several
// boxes, of different lengths, or too long; cuts of two dimensions, unless they join to one;
// devices that are not next to each other; slots that no mesh of one or two axes orders, of which
// one cuts; sides that share a device; parts that meet too many of the other side. Cost: linear in
// the slots.
absl::StatusOr<M2nTransfer> M2nTransferOf(const TensorTable& tensors, int32_t group);

}  // namespace crossmesh
