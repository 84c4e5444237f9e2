#pragma once

#include "common/base/clock.h"
#include "common/communicators/communicator_key.h"
#include "common/communicators/preflight_report.h"
#include "controller/communicators/communicator_registry.h"
#include "controller/dispatch/communicator_gateway.h"
#include "controller/dispatch/fair_gpu_lock.h"
#include "controller/dispatch/task_queue.h"

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>
#include <absl/time/time.h>

namespace crossmesh {

class ControllerMetrics;
class WorkerRegistry;

// Gives communicators to operations that need them, when it is their turn on the GPUs, and has them
// made and destroyed: carries out what the registry decides by calls to workers, and tells the
// registry what came of them.
//
// What the workers answer to an order counts until the next order for the same communicator: a rank
// that was told to stop may still answer that it is ready. An order to stop is repeated until the
// worker has answered it, or has lost the process; a process that is back later is told anew by the
// registry.
//
// Confined to the queue, but for OnProcessLost; never blocks. Queue and gateway must have stopped
// before it goes away.
class CommunicatorLeases {
 public:
  // For what a process knows without NCCL.
  static constexpr absl::Duration kAnswerLimit = absl::Seconds(10);
  // From the order until every rank has answered. NCCL takes seconds, and tens of them for hundreds
  // of ranks.
  static constexpr absl::Duration kCreateLimit = absl::Seconds(60);
  static constexpr absl::Duration kDestroyLimit = absl::Seconds(30);
  static constexpr absl::Duration kStopPause = absl::Seconds(1);

  struct Options {
    CommunicatorGateway& gateway;
    const WorkerRegistry& workers;
    TaskQueue& queue;
    const Clock& clock;
    ControllerMetrics& metrics;
    CommunicatorRegistry::Options bounds;
  };

  explicit CommunicatorLeases(const Options& options);

  // Gets leases of the communicators for `user`, which has none and waits for none: of all or
  // of none. They have no GPU in common. Until they are released, no other user has one of the same
  // GPUs. `on_answer` is called once, not from inside: OK when the leases are there, else with the
  // rank and worker that failed, and nothing to release. FailedPrecondition when the ranks do not
  // fit together; ResourceExhausted when those in use leave no room; Unavailable when a process is
  // lost; errors of the ranks.
  using OnAnswer = absl::AnyInvocable<void(absl::Status)>;
  void Want(const std::string& user, std::vector<CommunicatorKey> keys, OnAnswer on_answer);
  // The user does nothing with the GPUs any more, or waits no longer. Repeatable.
  void Release(const std::string& user);
  // The user's communicator is of no use at `rank`, and so at no other rank. Nothing happens when
  // that is known.
  void Broken(const std::string& user, const RankName& rank, const absl::Status& status);

  // Thread-safe.
  void OnProcessLost(const RankName& process, const absl::Status& why);

 private:
  // Of all that a user wants.
  struct Lease {
    std::vector<CommunicatorKey> keys;
    OnAnswer on_answer;  // null once it is granted or refused
    std::set<CommunicatorKey> granted;
    std::set<CommunicatorKey> ended;  // by the registry; the user does not know yet
  };
  // The latest order for a communicator, until all ranks that got it have answered.
  struct OpenOrder {
    uint64_t number = 0;
    std::set<int32_t> unanswered;          // ranks
    std::vector<PreflightReport> reports;  // by rank, of those that have answered
    TaskQueue::Timer limit;
  };

  void LoseProcess(const RankName& process, const absl::Status& why);
  void Feed(const CommunicatorEvent& event);
  void Do(const CollectPreflights& action);
  void Do(const MintId& action);
  void Do(const CreateCommunicator& action);
  void Do(const DestroyCommunicator& action);
  void Do(const StopCommunicator& action);
  void Do(const GrantLease& action);
  void Do(const EndLease& action);
  // It is the user's turn.
  void TakeTurn(const std::string& user);
  // It is over: others have theirs.
  void LeaveGpus(const std::string& user);
  // Unless that order is over.
  void StopRank(const CommunicatorRank& at, uint64_t order, const std::string& reason);
  bool IsStopping(const CommunicatorRank& at, uint64_t order) const;

  struct OrderOptions {
    absl::Duration limit;  // until all have answered
    bool first_rank_only = false;
  };
  // Begins an order to the ranks of a communicator, in place of the one before. `ask` is given a
  // worker's address, the rank there, and what to call with the answer. Unless that comes too late,
  // `on_value` gets rank and answer on the queue; errors fail the rank, with the worker's name.
  template <typename Value, typename Ask, typename OnValue>
  void Order(const CommunicatorKey& key, const OrderOptions& options, Ask ask, OnValue on_value);
  template <typename Value, typename Ask, typename OnValue>
  void Call(const CommunicatorRank& at, const Ask& ask, OnValue on_value);
  void Forget(const CommunicatorKey& key);
  void OnLimit(const CommunicatorKey& key, uint64_t order, absl::Duration limit);
  void OnPreflight(const CommunicatorRank& at, PreflightReport report);
  void OnReady(const CommunicatorRank& at, int64_t bytes);
  void Fail(const CommunicatorRank& at, const absl::Status& status);
  void CountCommunicators();

  const Options options_;
  CommunicatorRegistry registry_;
  uint64_t last_order_ = 0;
  std::map<CommunicatorKey, OpenOrder> orders_;
  // Orders to stop that were not answered, by number.
  std::map<std::pair<CommunicatorKey, RankName>, uint64_t> stops_;
  std::map<std::string, Lease> leases_;  // by user
  FairGpuLock turns_;                    // of users with a lease, or a wish for one
  absl::Duration making_since_;          // of the communicator that is being made: one at a time
};

}  // namespace crossmesh
