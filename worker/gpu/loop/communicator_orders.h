#pragma once

#include "common/base/clock.h"
#include "crossmesh/v1/gpu_process.pb.h"
#include "worker/gpu/communicators/communicator_table.h"

#include <cstdint>
#include <list>
#include <map>

#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>

namespace crossmesh {

// What is ordered of this process's communicators, and what became of it. Confined to the thread
// of the Gpu.
class CommunicatorOrders {
 public:
  // Called once for each order, from inside it or from Poll: with what a new communicator took of
  // the GPU's memory, 0 for an end that was ordered, or an error.
  using Done = absl::AnyInvocable<void(absl::StatusOr<int64_t>)>;
  // Called from inside Poll, and from inside Stop.
  struct Handlers {
    // Nothing is left of it, and no order asked for that.
    absl::AnyInvocable<void(const CommunicatorKey& key, const absl::Status& cause)> on_lost;
    // Each change of one that was ready. It may be gone already, and only serves to know it again.
    absl::AnyInvocable<void(const Communicator& communicator, CommunicatorState state,
                            const absl::Status& cause)>
        on_change;
  };

  // All references must outlive it. The times of `table` to make and to finalize are longer than
  // any order's.
  CommunicatorOrders(const Clock& clock, CommunicatorTable& table, Handlers handlers)
      : clock_(clock), table_(table), handlers_(std::move(handlers)) {}

  // Carry out an order, or say why not, as CommunicatorTable does. One that takes longer than its
  // time is stopped. A communicator of a later epoch begins that epoch.
  void Create(const v1::CreateCommunicatorRequest& order, Done done);
  void Destroy(const v1::DestroyCommunicatorRequest& order, Done done);
  // NotFound when nothing is left of it, which is what was wanted.
  void Stop(const v1::StopCommunicatorRequest& order, Done done);
  // Done when nothing is left of earlier epochs.
  void BeginEpoch(uint64_t epoch, Done done);

  void Poll();
  // OK, or DeadlineExceeded once a communicator hangs, which only the end of the process ends.
  const absl::Status& health() const { return health_; }
  // Whether something is expected to change.
  bool is_busy() const { return !orders_.empty(); }
  // Whether anything is there that may change.
  bool is_empty() const { return table_.List().empty(); }

  // Null unless it can be used.
  Communicator* Find(const CommunicatorKey& key) { return table_.Find(key); }
  // Ends one that its user cannot go on with; told as lost.
  void Stop(const Communicator& communicator, const absl::Status& why);

 private:
  enum class Kind : uint8_t { kCreate, kDestroy, kStop, kEpoch };
  struct Order {
    Kind kind = Kind::kCreate;
    CommunicatorKey key;      // of an epoch: without ranks
    absl::Duration deadline;  // on the monotonic clock
    Done done;
  };

  // What an order says, checked and handed to the table; without `done`.
  absl::StatusOr<Order> Begin(const v1::CreateCommunicatorRequest& order);
  absl::StatusOr<Order> Begin(const v1::DestroyCommunicatorRequest& order);
  absl::StatusOr<Order> Begin(const v1::StopCommunicatorRequest& order);
  absl::StatusOr<Order> Begin(uint64_t epoch);
  void Keep(absl::StatusOr<Order> begun, Done done);
  void StopLate();
  void OnChange(const CommunicatorTable::Change& change);
  void OnGone(const CommunicatorTable::Change& change);
  void EndEpochs();
  bool HasOrder(const CommunicatorKey& key) const;

  const Clock& clock_;
  CommunicatorTable& table_;
  Handlers handlers_;
  absl::Status health_;
  std::list<Order> orders_;  // in the order in which they came
  std::map<CommunicatorKey, const Communicator*> ready_;
};

}  // namespace crossmesh
