#pragma once

#include "common/mesh/data_type.h"

#include <cstdint>
#include <span>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>
#include <cuda.h>

namespace crossmesh {

struct M2nTransfer;

// One end of a transfer between two ranks: sent or received, as the list says that it is in.
struct RankMessage {
  int peer = 0;  // rank; may be the own one
  CUdeviceptr address = 0;
  int64_t bytes = 0;  // more than 0
};

enum class CollectiveKind : uint8_t {
  kBroadcast,      // `count` elements of the root's `from` to every rank's `to`
  kAllGather,      // `count` elements of each rank, in the order of ranks
  kReduce,         // all ranks' `from`, element by element, to the root's `to`
  kAllReduce,      // the same, to every rank's `to`
  kReduceScatter,  // of size x `count` elements of each rank, the part of each to its `to`
};
absl::string_view CollectiveKindName(CollectiveKind kind);

enum class CollectiveReduction : uint8_t { kSum, kProduct, kMinimum, kMaximum, kAverage };

// Groups of ranks of a communicator, no rank in two of them, each in the order in which its members
// are ranks of the group's own communicator.
using RankGroups = std::vector<std::vector<int>>;

struct Collective {
  CollectiveKind kind = CollectiveKind::kBroadcast;
  CUdeviceptr from = 0;  // only the root's counts in a broadcast
  CUdeviceptr to = 0;    // only the root's counts in a reduce; may be `from` where both are as long
  int64_t count = 0;     // elements, more than 0
  DataType type = DataType::kU8;
  int root = 0;                                               // of a broadcast or a reduce
  CollectiveReduction reduction = CollectiveReduction::kSum;  // of those that reduce
};

// A tensor, as NCCL M2N is told of it at one rank. The transfer is one for many of them, and
// outlives the call.
struct M2nTensor {
  const M2nTransfer* transfer = nullptr;
  int64_t item_bytes = 1;
  CUdeviceptr source = 0;       // of this rank's tile; 0: the rank is not in that mesh
  CUdeviceptr destination = 0;  // likewise
};

// This process's rank of a group of ranks that move bytes of device memory among each other. All of
// them call Perform in one order; messages between two ranks match in the order of their lists.
//
// Each call leaves the communicator in progress. Until Poll has said that it is idle again, nothing
// else may be called, and nothing may be put on the stream or relied on to be there; idle means
// that the work is on the stream, after what was there before. A call too early is
// FailedPrecondition and does nothing. Confined to its thread.
class Communicator {
 public:
  enum class Progress : uint8_t { kIdle, kInProgress };

  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Sends and receives at once, so that no order of them can deadlock. Every message's other end
  // must be in a call of the peer. Both may be empty. InvalidArgument for what no rank could do,
  // such as a peer that is none; the communicator stays as it was.
  virtual absl::Status Exchange(std::span<const RankMessage> sends,
                                std::span<const RankMessage> receives, CUstream stream) = 0;

  // One after the other. Every rank calls it with as many, each of the same kind, count, type,
  // root and reduction. InvalidArgument as above; elements are reduced if they are whole numbers of
  // 8, 32 or 64 bits or floating point numbers of 16 bits or more.
  virtual absl::Status PerformAll(std::span<const Collective> collectives, CUstream stream) = 0;
  absl::Status Perform(const Collective& collective, CUstream stream) {
    return PerformAll({&collective, 1}, stream);
  }

  // Gives each of the groups a communicator of its own, unless it has one. Every rank calls it with
  // the same groups, whether it is in one of them or not, when all its work on streams is done.
  // Those of the last kSplitsKept splits that were asked for are kept, all others end. For ranks
  // that are none, InvalidArgument; the communicator stays as it was.
  static constexpr int kSplitsKept = 4;
  virtual absl::Status Split(const RankGroups& groups) = 0;
  // PerformAll of the ranks of this rank's group, by their ranks there. FailedPrecondition where it
  // was not split so, or the rank is in no group.
  virtual absl::Status PerformAllIn(const RankGroups& groups,
                                    std::span<const Collective> collectives, CUstream stream) = 0;

  // Moves the tensors from all source tiles to all destination tiles, by one group of calls of NCCL
  // M2N. Every rank calls it with the same transfers in the same order. FailedPrecondition,
  // with the reason, where there is no M2N; the communicator stays as it was.
  virtual absl::Status Reshard(std::span<const M2nTensor> tensors, CUstream stream) = 0;

  // An error, then and ever after, when the communicator has failed: all that is left is to end it.
  virtual absl::StatusOr<Progress> Poll() = 0;
};

}  // namespace crossmesh
