#pragma once

#include "common/metrics/label_set.h"
#include "common/metrics/metric_family.h"

#include <cstdint>

#include <absl/strings/string_view.h>
#include <absl/time/time.h>

namespace crossmesh {

// What the controller records. A strategy that is not one of kStrategies is left out. Thread-safe;
// never blocks.
class ControllerMetrics {
 public:
  // A plan that was handed out, computed now or taken from the cache.
  struct PlanFacts {
    absl::string_view strategy;
    int64_t network_bytes = 0;        // planned through NICs
    int64_t least_network_bytes = 0;  // that any plan needs
  };
  struct OperationFacts {
    absl::string_view strategy;
    OperationResult result = OperationResult::kCommitted;
    absl::Duration duration;        // from the request to the end
    int64_t destination_bytes = 0;  // delivered to committed replicas
    // The time that the bytes took, and the least that any plan needs for them; both zero unless
    // the operation committed, so that their ratio is the efficiency.
    absl::Duration transfer;
    absl::Duration bound;
  };

  ControllerMetrics();

  const MetricSet& metrics() const { return metrics_; }

  void SetEpoch(uint64_t epoch) { epoch_.Set(epoch); }

  void SetWorkers(WorkerStateLabel state, int64_t workers) { workers_.Set(workers, state); }
  void SetWorkerSessions(int64_t sessions) { sessions_.Set(sessions); }
  void WorkerRegistration(RegistrationResult result) { registrations_.Increment(result); }
  void WorkerLost(WorkerLossReason reason) { losses_.Increment(reason); }
  // Time since the same worker's heartbeat before.
  void Heartbeat(absl::Duration interval) { heartbeats_.Observe(interval); }

  void SetCommunicators(CommunicatorStateLabel state, int64_t communicators) {
    communicators_.Set(communicators, state);
  }
  // From its turn to the last rank that was ready.
  void CommunicatorMade(absl::Duration duration) { communicator_seconds_.Observe(duration); }

  void SetObjects(ObjectKind kind, int64_t objects) { objects_.Set(objects, kind); }

  // A commit or a read, from the call to its answer.
  void StoreTransaction(StoreOp op, StoreResult result, absl::Duration duration) {
    store_transactions_.Increment(op, result);
    store_seconds_.Observe(duration, op);
  }
  // How the store does now. Counts are since it was opened.
  struct StoreFacts {
    int64_t revision = 0;
    int64_t database_bytes = 0;
    int64_t log_bytes = 0;
    int64_t commits_kept = 0;
    int64_t kept_bytes = 0;
    int64_t free_bytes = 0;
    bool is_read_only = false;
    int64_t corruptions = 0;
    int64_t backup_failures = 0;
    absl::Time verified_at = absl::UnixEpoch();
    absl::Time backed_up_at = absl::UnixEpoch();
  };
  // By one thread.
  void SetStore(const StoreFacts& store);

  void PlanCacheRequest(CacheResult result) { cache_requests_.Increment(result); }
  // Planning and proof.
  void PlanComputed(absl::string_view strategy, absl::Duration duration, int64_t relays);
  void PlanUsed(const PlanFacts& plan);
  void SetPlanCacheBytes(int64_t bytes) { cache_bytes_.Set(bytes); }
  void SetPlansWaiting(int64_t requests) { plans_waiting_.Set(requests); }
  void PlanWaited(absl::Duration duration) { plan_wait_seconds_.Observe(duration); }

  void SetOperationsInProgress(RunningState state, int64_t operations) {
    in_progress_.Set(operations, state);
  }
  // From the first dispatch to the last worker's acceptance.
  void Dispatched(absl::Duration duration) { dispatch_seconds_.Observe(duration); }
  void OperationEnded(const OperationFacts& operation);

 private:
  MetricSet metrics_;
  Gauges epoch_{metrics_, metric::kEpoch};
  Gauges workers_{metrics_, metric::kWorkers, OneOf("state", kWorkerStates)};
  Gauges sessions_{metrics_, metric::kWorkerSessions};
  Counters registrations_{metrics_, metric::kWorkerRegistrations,
                          OneOf("result", kRegistrationResults)};
  Counters losses_{metrics_, metric::kWorkerLosses, OneOf("reason", kWorkerLossReasons)};
  Histograms heartbeats_{metrics_, metric::kHeartbeatInterval, metric::kHeartbeatBuckets};
  Gauges communicators_{metrics_, metric::kCommunicators, OneOf("state", kCommunicatorStates)};
  Histograms communicator_seconds_{metrics_, metric::kCommunicatorSeconds,
                                   metric::kTransferBuckets};
  Gauges objects_{metrics_, metric::kObjects, OneOf("kind", kObjectKinds)};
  Histograms store_seconds_{metrics_, metric::kStoreSeconds, metric::kStoreBuckets,
                            OneOf("op", kStoreOps)};
  Counters store_transactions_{metrics_, metric::kStoreTransactions, OneOf("op", kStoreOps),
                               OneOf("result", kStoreResults)};
  Gauges store_size_{metrics_, metric::kStoreSize, OneOf("file", kStoreFiles)};
  Gauges store_commits_kept_{metrics_, metric::kStoreCommitsKept};
  Gauges store_kept_bytes_{metrics_, metric::kStoreKeptBytes};
  Gauges store_free_{metrics_, metric::kStoreFree};
  Gauges store_revision_{metrics_, metric::kStoreRevision};
  Gauges store_read_only_{metrics_, metric::kStoreReadOnly};
  Counters store_corruptions_{metrics_, metric::kStoreCorruptions};
  Gauges store_verified_{metrics_, metric::kStoreVerified};
  Gauges store_backed_up_{metrics_, metric::kStoreBackedUp};
  Counters store_backup_failures_{metrics_, metric::kStoreBackupFailures};
  Counters cache_requests_{metrics_, metric::kPlanCacheRequests, OneOf("result", kCacheResults)};
  Gauges cache_bytes_{metrics_, metric::kPlanCacheBytes};
  Histograms plan_seconds_{metrics_, metric::kPlanSeconds, metric::kPlanBuckets,
                           OneOf("strategy", kStrategies)};
  Histograms plan_relays_{metrics_, metric::kPlanRelays, metric::kRelaysBuckets};
  Gauges plans_waiting_{metrics_, metric::kPlansWaiting};
  Histograms plan_wait_seconds_{metrics_, metric::kPlanWaitSeconds, metric::kPlanBuckets};
  Counters plan_bytes_{metrics_, metric::kPlanBytes, OneOf("strategy", kStrategies)};
  Counters plan_least_bytes_{metrics_, metric::kPlanLeastBytes, OneOf("strategy", kStrategies)};
  Gauges in_progress_{metrics_, metric::kOperationsInProgress, OneOf("state", kRunningStates)};
  Histograms dispatch_seconds_{metrics_, metric::kDispatchSeconds, metric::kLatencyBuckets};
  Counters operations_{metrics_, metric::kOperations, OneOf("strategy", kStrategies),
                       OneOf("result", kOperationResults)};
  Histograms operation_seconds_{metrics_, metric::kOperationSeconds, metric::kTransferBuckets,
                                OneOf("strategy", kStrategies)};
  Counters operation_bytes_{metrics_, metric::kOperationBytes, OneOf("strategy", kStrategies)};
  Counters transfer_seconds_{metrics_, metric::kOperationTransferSeconds,
                             OneOf("strategy", kStrategies)};
  Counters bound_seconds_{metrics_, metric::kOperationBoundSeconds, OneOf("strategy", kStrategies)};
};

}  // namespace crossmesh
