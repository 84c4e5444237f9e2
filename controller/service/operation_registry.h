#pragma once

#include "common/base/clock.h"
#include "common/base/digest.h"
#include "common/base/mutex.h"
#include "common/metrics/controller_metrics.h"
#include "controller/catalog/operation_records.h"
#include "controller/dispatch/running_operation.h"
#include "controller/dispatch/task_queue.h"
#include "crossmesh/v1/operation_service.pb.h"

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <absl/container/btree_map.h>
#include <absl/container/flat_hash_map.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// Somebody who follows an operation. Called on the registry's queue; must not block.
class OperationWatcher {
 public:
  virtual ~OperationWatcher() = default;
  // The operation now, and at every change; the last one has ended. False: enough.
  virtual bool OnOperation(const v1::Operation& operation) = 0;
  // There is no such operation (any more), or the controller stops.
  virtual void OnNoOperation(const absl::Status& status) = 0;
};

// All operations, as clients see them: those that run, from the runner's snapshots, and those that
// have finished, from the records; their intents and results; who watches them. Thread-safe.
class OperationRegistry final : public OperationSink {
 public:
  struct Options {
    OperationRecords& records;
    TaskQueue& queue;  // on which the runner calls; watchers are called on it as well
    const Clock& clock;
    ControllerMetrics& metrics;
    uint64_t epoch = 0;
  };
  explicit OperationRegistry(const Options& options) : options_(options) {}

  struct Entry {
    std::string id;
    uint64_t number = 0;
    bool is_new = false;  // the caller starts it, or says that it cannot
  };
  // The operation of a request. Ids grow, also from one controller to the next, since they count
  // from the epoch. AlreadyExists: the request id began an operation with other content;
  // ResourceExhausted: as OperationRecords::FindRequest.
  absl::StatusOr<Entry> Open(const v1::ReshardSpec& spec, const std::string& request_id);
  // The operation of this request, when it was opened before.
  absl::StatusOr<std::optional<std::string>> Find(const v1::ReshardSpec& spec,
                                                  const std::string& request_id) const;
  // A new operation could not be started: forgets it and tells its watchers why.
  void Withdraw(const std::string& id, const absl::Status& why);

  void Watch(const std::string& id, const std::shared_ptr<OperationWatcher>& watcher);
  void Unwatch(const std::string& id, const OperationWatcher* watcher);
  // Ends all watches.
  void DismissWatchers(const absl::Status& why);

  // NotFound names the operation.
  absl::StatusOr<v1::Operation> Get(const std::string& id) const;
  // Newest first, those with an id less than `before` (empty: all).
  std::vector<v1::Operation> List(const std::string& before, int64_t limit) const;

  void CommitIntent(const OperationSnapshot& operation,
                    absl::AnyInvocable<void(absl::Status)> done) override;
  void OnChange(const OperationSnapshot& operation) override;
  void OnFinish(const OperationSnapshot& operation) override;

 private:
  using Watchers = std::vector<std::shared_ptr<OperationWatcher>>;
  struct Running {
    uint64_t number = 0;
    Digest content;
    std::string request_id;
    std::shared_ptr<const v1::ReshardSpec> shown;
    std::shared_ptr<const v1::Operation> latest;
    bool recorded = false;  // its intent is committed
    Watchers watchers;
  };

  // The operation as clients see it; takes the place of the latest one.
  std::shared_ptr<const v1::Operation> Update(const OperationSnapshot& operation);
  Running TakeOut(const std::string& id);
  void Record(const Running& ended);
  void CountStates(v1::OperationState from, v1::OperationState to);
  void RecordMetrics(const OperationSnapshot& operation);

  const Options options_;

  mutable Mutex mutex_;
  absl::btree_map<std::string, Running> running_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, std::string> running_request_ ABSL_GUARDED_BY(mutex_);
  uint64_t opened_ ABSL_GUARDED_BY(mutex_) = 0;
  std::array<int64_t, v1::OperationState_ARRAYSIZE> in_state_ ABSL_GUARDED_BY(mutex_) = {};
};

}  // namespace crossmesh
