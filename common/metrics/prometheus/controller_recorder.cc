#include "common/metrics/prometheus/labelled_metrics.h"
#include "common/metrics/prometheus/recorders.h"

#include <optional>

namespace crossmesh {
namespace {

class ControllerRecorder final : public ControllerMetrics {
 public:
  explicit ControllerRecorder(prometheus::Registry& registry)
      : epoch_(registry, metric::kEpoch, kNoLabels, kNoLabels),
        workers_(registry, metric::kWorkers, OneOf("state", kWorkerStates), kNoLabels),
        sessions_(registry, metric::kWorkerSessions, kNoLabels, kNoLabels),
        registrations_(registry, metric::kWorkerRegistrations,
                       OneOf("result", kRegistrationResults), kNoLabels),
        losses_(registry, metric::kWorkerLosses, OneOf("reason", kWorkerLossReasons), kNoLabels),
        heartbeats_(registry, metric::kHeartbeatInterval, kNoLabels, metric::kHeartbeatBuckets),
        communicators_(registry, metric::kCommunicators, OneOf("state", kCommunicatorStates),
                       kNoLabels),
        communicator_seconds_(registry, metric::kCommunicatorSeconds, kNoLabels,
                              metric::kTransferBuckets),
        objects_(registry, metric::kObjects, OneOf("kind", kObjectKinds), kNoLabels),
        cache_requests_(registry, metric::kPlanCacheRequests, OneOf("result", kCacheResults),
                        kNoLabels),
        plan_seconds_(registry, metric::kPlanSeconds, strategies_, metric::kPlanBuckets),
        plan_relays_(registry, metric::kPlanRelays, kNoLabels, metric::kRelaysBuckets),
        plan_bytes_(registry, metric::kPlanBytes, strategies_, kNoLabels),
        plan_least_bytes_(registry, metric::kPlanLeastBytes, strategies_, kNoLabels),
        in_progress_(registry, metric::kOperationsInProgress, OneOf("state", kRunningStates),
                     kNoLabels),
        dispatch_seconds_(registry, metric::kDispatchSeconds, kNoLabels, metric::kLatencyBuckets),
        operations_(registry, metric::kOperations, strategies_, OneOf("result", kOperationResults)),
        operation_seconds_(registry, metric::kOperationSeconds, strategies_,
                           metric::kTransferBuckets),
        operation_bytes_(registry, metric::kOperationBytes, strategies_, kNoLabels),
        transfer_seconds_(registry, metric::kOperationTransferSeconds, strategies_, kNoLabels),
        bound_seconds_(registry, metric::kOperationBoundSeconds, strategies_, kNoLabels) {}

  void SetEpoch(uint64_t epoch) override { epoch_.At(0).Set(static_cast<double>(epoch)); }
  void SetWorkers(WorkerStateLabel state, int64_t workers) override {
    workers_.At(static_cast<size_t>(state)).Set(static_cast<double>(workers));
  }
  void SetWorkerSessions(int64_t sessions) override {
    sessions_.At(0).Set(static_cast<double>(sessions));
  }
  void WorkerRegistration(RegistrationResult result) override {
    registrations_.At(static_cast<size_t>(result)).Increment();
  }
  void WorkerLost(WorkerLossReason reason) override {
    losses_.At(static_cast<size_t>(reason)).Increment();
  }
  void Heartbeat(absl::Duration interval) override {
    heartbeats_.At(0).Observe(absl::ToDoubleSeconds(interval));
  }
  void SetCommunicators(CommunicatorStateLabel state, int64_t communicators) override {
    communicators_.At(static_cast<size_t>(state)).Set(static_cast<double>(communicators));
  }
  void CommunicatorMade(absl::Duration duration) override {
    communicator_seconds_.At(0).Observe(absl::ToDoubleSeconds(duration));
  }
  void SetObjects(ObjectKind kind, int64_t objects) override {
    objects_.At(static_cast<size_t>(kind)).Set(static_cast<double>(objects));
  }
  void PlanCacheRequest(CacheResult result) override {
    cache_requests_.At(static_cast<size_t>(result)).Increment();
  }
  void PlanComputed(absl::string_view strategy, absl::Duration duration, int64_t relays) override {
    plan_relays_.At(0).Observe(static_cast<double>(relays));
    if (const auto s = FindLabel(kStrategies, strategy)) {
      plan_seconds_.At(*s).Observe(absl::ToDoubleSeconds(duration));
    }
  }
  void PlanUsed(const PlanFacts& plan) override {
    if (const auto s = FindLabel(kStrategies, plan.strategy)) {
      plan_bytes_.At(*s).Increment(static_cast<double>(plan.network_bytes));
      plan_least_bytes_.At(*s).Increment(static_cast<double>(plan.least_network_bytes));
    }
  }
  void SetOperationsInProgress(RunningState state, int64_t operations) override {
    in_progress_.At(static_cast<size_t>(state)).Set(static_cast<double>(operations));
  }
  void Dispatched(absl::Duration duration) override {
    dispatch_seconds_.At(0).Observe(absl::ToDoubleSeconds(duration));
  }
  void OperationEnded(const OperationFacts& operation) override {
    const std::optional<size_t> s = FindLabel(kStrategies, operation.strategy);
    if (!s.has_value()) return;
    operations_.At(*s, static_cast<size_t>(operation.result)).Increment();
    operation_seconds_.At(*s).Observe(absl::ToDoubleSeconds(operation.duration));
    operation_bytes_.At(*s).Increment(static_cast<double>(operation.destination_bytes));
    transfer_seconds_.At(*s).Increment(absl::ToDoubleSeconds(operation.transfer));
    bound_seconds_.At(*s).Increment(absl::ToDoubleSeconds(operation.bound));
  }

 private:
  const LabelSets strategies_ = OneOf("strategy", kStrategies);
  Gauges epoch_;
  Gauges workers_;
  Gauges sessions_;
  Counters registrations_;
  Counters losses_;
  Histograms heartbeats_;
  Gauges communicators_;
  Histograms communicator_seconds_;
  Gauges objects_;
  Counters cache_requests_;
  Histograms plan_seconds_;
  Histograms plan_relays_;
  Counters plan_bytes_;
  Counters plan_least_bytes_;
  Gauges in_progress_;
  Histograms dispatch_seconds_;
  Counters operations_;
  Histograms operation_seconds_;
  Counters operation_bytes_;
  Counters transfer_seconds_;
  Counters bound_seconds_;
};

}  // namespace

std::unique_ptr<ControllerMetrics> MakeControllerMetrics(prometheus::Registry& registry) {
  return std::make_unique<ControllerRecorder>(registry);
}

}  // namespace crossmesh
