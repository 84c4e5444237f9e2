#include "controller/controller_upkeep.h"

#include "common/daemon/daemon_health.h"
#include "common/metrics/controller_metrics.h"
#include "controller/catalog/job_records.h"
#include "controller/dispatch/task_queue.h"
#include "controller/membership/worker_registry.h"
#include "controller/store/measured_store.h"
#include "controller/store/memory_store.h"
#include "controller/store/store_upkeep.h"

#include <array>
#include <functional>
#include <utility>

namespace crossmesh {
namespace {

void CountWorkers(const WorkerRegistry& registry, ControllerMetrics& metrics) {
  constexpr std::pair<WorkerState, WorkerStateLabel> kLabels[] = {
      {WorkerState::kReady, WorkerStateLabel::kReady},
      {WorkerState::kSuspect, WorkerStateLabel::kSuspect},
      {WorkerState::kDraining, WorkerStateLabel::kDraining},
      {WorkerState::kLost, WorkerStateLabel::kLost}};
  std::array<int64_t, std::size(kLabels)> counts = {};
  for (const WorkerRecord& record : registry.List()) ++counts[static_cast<size_t>(record.state)];
  for (const auto& [state, label] : kLabels) {
    metrics.SetWorkers(label, counts[static_cast<size_t>(state)]);
  }
}

ControllerMetrics::StoreFacts FactsOf(const MetadataStore& store, const StoreUpkeep* upkeep) {
  ControllerMetrics::StoreFacts facts = {.revision = store.revision()};
  if (upkeep == nullptr) return facts;
  const StoreCondition condition = upkeep->condition();
  facts.database_bytes = condition.database_bytes;
  facts.log_bytes = condition.log_bytes;
  facts.commits_kept = condition.commits_kept;
  facts.kept_bytes = condition.kept_bytes;
  facts.free_bytes = condition.free_bytes;
  facts.is_read_only = condition.is_read_only || condition.is_full;
  facts.corruptions = condition.corruptions;
  facts.backup_failures = condition.backup_failures;
  facts.verified_at = condition.verified_at.value_or(absl::UnixEpoch());
  facts.backed_up_at = condition.backed_up_at.value_or(absl::UnixEpoch());
  return facts;
}

}  // namespace

std::shared_ptr<MetadataStore> StoreOf(const Controller::Options& options) {
  return options.store != nullptr ? options.store : std::make_shared<MemoryStore>();
}

std::unique_ptr<MetadataStore> Measured(MetadataStore& store, const Clock& clock,
                                        ControllerMetrics& metrics) {
  return std::make_unique<MeasuredStore>(store, clock, metrics);
}

void BeWatched(const Controller::Options& options, TaskQueue& queue) {
  if (options.health == nullptr) return;
  options.health->watchdog.Watch("operations", [&queue](std::function<void()> answered) {
    queue.Post([answered = std::move(answered)] { answered(); });
  });
  if (options.upkeep == nullptr) return;
  options.health->watchdog.Watch("store",
                                 [upkeep = options.upkeep](std::function<void()> answered) {
                                   upkeep->Ask(std::move(answered));
                                 });
}

void BeWatchedNoMore(const Controller::Options& options) {
  if (options.health != nullptr) options.health->watchdog.Forget();
}

void SayServing(const Controller::Options& options, bool is_serving) {
  if (options.health == nullptr) return;
  if (is_serving) {
    options.health->probes.SetServing();
  } else {
    options.health->probes.SetNotServing("stopping");
  }
}

void CountJobs(const JobRecords& operations, const JobRecords& runs, ControllerMetrics& metrics) {
  const JobRecords::Counts of_operations = operations.counts();
  metrics.SetObjects(ObjectKind::kOperation, of_operations.finished);
  metrics.SetObjects(ObjectKind::kOperationRequest, of_operations.requests);
  const JobRecords::Counts of_runs = runs.counts();
  metrics.SetObjects(ObjectKind::kRun, of_runs.finished);
  metrics.SetObjects(ObjectKind::kRunRequest, of_runs.requests);
}

void UpdateMetrics(const WorkerRegistry& workers, const MetadataStore& store,
                   const StoreUpkeep* upkeep, ControllerMetrics& metrics) {
  CountWorkers(workers, metrics);
  metrics.SetStore(FactsOf(store, upkeep));
}

}  // namespace crossmesh
