#pragma once

#include "common/metrics/label_set.h"

#include <cstdint>

#include <absl/strings/string_view.h>
#include <absl/time/time.h>

namespace crossmesh {

// What the controller records. Implementations are thread-safe and never block. A strategy that is
// not one of kStrategies is left out.
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

  virtual ~ControllerMetrics() = default;

  virtual void SetEpoch(uint64_t epoch) = 0;

  virtual void SetWorkers(WorkerStateLabel state, int64_t workers) = 0;
  virtual void SetWorkerSessions(int64_t sessions) = 0;
  virtual void WorkerRegistration(RegistrationResult result) = 0;
  virtual void WorkerLost(WorkerLossReason reason) = 0;
  // Time since the same worker's heartbeat before.
  virtual void Heartbeat(absl::Duration interval) = 0;

  virtual void SetCommunicators(CommunicatorStateLabel state, int64_t communicators) = 0;
  // From its turn to the last rank that was ready.
  virtual void CommunicatorMade(absl::Duration duration) = 0;

  virtual void SetObjects(ObjectKind kind, int64_t objects) = 0;

  virtual void PlanCacheRequest(CacheResult result) = 0;
  // Planning and proof.
  virtual void PlanComputed(absl::string_view strategy, absl::Duration duration,
                            int64_t relays) = 0;
  virtual void PlanUsed(const PlanFacts& plan) = 0;

  virtual void SetOperationsInProgress(RunningState state, int64_t operations) = 0;
  // From the first dispatch to the last worker's acceptance.
  virtual void Dispatched(absl::Duration duration) = 0;
  virtual void OperationEnded(const OperationFacts& operation) = 0;
};

class NullControllerMetrics : public ControllerMetrics {
 public:
  void SetEpoch(uint64_t /*epoch*/) override {}
  void SetWorkers(WorkerStateLabel /*state*/, int64_t /*workers*/) override {}
  void SetWorkerSessions(int64_t /*sessions*/) override {}
  void WorkerRegistration(RegistrationResult /*result*/) override {}
  void WorkerLost(WorkerLossReason /*reason*/) override {}
  void Heartbeat(absl::Duration /*interval*/) override {}
  void SetCommunicators(CommunicatorStateLabel /*state*/, int64_t /*communicators*/) override {}
  void CommunicatorMade(absl::Duration /*duration*/) override {}
  void SetObjects(ObjectKind /*kind*/, int64_t /*objects*/) override {}
  void PlanCacheRequest(CacheResult /*result*/) override {}
  void PlanComputed(absl::string_view /*strategy*/, absl::Duration /*duration*/,
                    int64_t /*relays*/) override {}
  void PlanUsed(const PlanFacts& /*plan*/) override {}
  void SetOperationsInProgress(RunningState /*state*/, int64_t /*operations*/) override {}
  void Dispatched(absl::Duration /*duration*/) override {}
  void OperationEnded(const OperationFacts& /*operation*/) override {}
};

}  // namespace crossmesh
