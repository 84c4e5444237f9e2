#pragma once

#include "controller/dispatch/planned_reshard.h"
#include "controller/dispatch/worker_gateway.h"
#include "controller/operation/operation_machine.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/container/btree_map.h>
#include <absl/status/status.h>
#include <absl/time/time.h>

namespace crossmesh {

// What an operation came to.
struct OperationReport {
  int64_t destination_bytes = 0;  // of the committed replicas
  absl::Duration plan;            // zero when the plan was cached
  absl::Duration dispatch;        // from the first dispatch to the last acceptance
  absl::Duration transfer;        // from there to the last verified device
  absl::Duration commit;
  absl::Duration total;
  absl::Duration first_byte;  // median over workers, from dispatch to acceptance
  bool plan_cached = false;
  absl::btree_map<std::string, TaskFigures> workers;
};

// An operation at one moment.
struct OperationSnapshot {
  struct Replica {
    ReplicaState state = ReplicaState::kReceiving;
    absl::Status error;
  };

  std::string id;
  OperationState state = OperationState::kPreparing;
  uint32_t attempt = 1;
  int64_t revision = 1;  // counts changes
  int64_t moved_bytes = 0;
  std::vector<Replica> replicas;  // none before there is a plan
  absl::Status error;             // the first one
  absl::Duration deadline;        // zero before it is known
  absl::Time create_time;
  absl::Time end_time;                            // only when it has ended
  std::shared_ptr<const PlannedReshard> planned;  // the first attempt's; null before
  std::optional<OperationReport> report;          // only when it has ended
};

}  // namespace crossmesh
