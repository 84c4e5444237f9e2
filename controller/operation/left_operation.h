#pragma once

#include "common/plan/indices.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <absl/container/btree_map.h>
#include <absl/status/status.h>

namespace crossmesh {

enum class ReplicaState : uint8_t { kReceiving, kCommitted, kFailed };

// One worker's share in one attempt: which devices it owns, and which of them receive for which
// replica.
struct WorkerShare {
  std::string worker;
  // Destination devices of this worker -> replica.
  absl::btree_map<DeviceRank, int32_t> replica_of_device;
};

// Where a former controller has left an operation: the attempt whose tasks it may have started, and
// what had become of the replicas when that was planned.
struct LeftOperation {
  struct Replica {
    ReplicaState state = ReplicaState::kReceiving;
    absl::Status error;
  };
  uint32_t attempt = 1;
  std::vector<WorkerShare> shares;
  std::vector<Replica> replicas;
  absl::Status error;  // the first one
  // Of earlier attempts, whose workers may still hold leases on sources.
  std::vector<std::pair<std::string, uint32_t>> earlier_tasks;
};

}  // namespace crossmesh
