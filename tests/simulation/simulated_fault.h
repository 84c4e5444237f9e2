#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <absl/time/time.h>

namespace crossmesh {

// Something that goes wrong at a moment, for a while. Nodes are numbered as SimulatedCluster does.
struct SimulatedFault {
  enum class Kind : uint8_t {
    kKill,           // of a node's process, which starts again after `length`
    kPause,          // of a node's process
    kCutOneWay,      // nothing comes from `node` to `other`
    kCut,            // nor back
    kSwizzle,        // a random set of directions is cut one by one, and heals in another order
    kDelay,          // of all messages, by `amount` seconds
    kLoss,           // of packets, with probability `amount`
    kFlips,          // of a bit of a payload, with probability `amount`
    kWallJump,       // of a node's wall clock, `amount` seconds from the right time
    kDrift,          // a node's clocks run `amount` times as fast
    kPauseInCommit,  // of the leader, when etcd has taken its next commit
    kPauseAtOrder,   // of the worker that is ordered next to commit, before it does
    kCompact,        // etcd forgets all revisions but the newest
    kPowerLoss,      // of a controller with a disk, in the middle of write or sync number `amount`
    kDiskFull,       // of a controller
    kSyncFailures,   // of a controller's disk, `amount` of them
    kBitFlip,        // in the file of a controller that is killed, at `amount` of its bits
  };
  static constexpr int kKinds = 17;

  absl::Duration at;
  Kind kind = Kind::kKill;
  int node = 0;
  int other = 0;
  absl::Duration length;
  double amount = 0;

  std::string ToString() const;
};

// What nodes there are, and how long faults go on.
struct FaultPlanOptions {
  uint64_t seed = 0;
  int64_t controllers = 1;
  int64_t workers = 4;
  bool has_etcd = false;  // else the controller has a disk
  int64_t nodes = 0;
  absl::Duration end;
  // On average. Without: from 2 to 20 s, by the seed.
  std::optional<absl::Duration> every;
};
std::vector<SimulatedFault> MakeFaults(const FaultPlanOptions& options);

}  // namespace crossmesh
