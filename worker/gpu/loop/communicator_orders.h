#pragma once

#include "common/base/clock.h"
#include "worker/gpu/communicators/communicator_table.h"
#include "worker/gpu/protocol/gpu_request.h"

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <vector>

#include <absl/status/status.h>
#include <absl/time/time.h>

namespace crossmesh {

// What is ordered of this process's communicators, and what became of it. Confined to the thread
// of the Gpu.
class CommunicatorOrders {
 public:
  // Called from inside Poll, and from inside Begin for a stop.
  class Listener {
   public:
    virtual ~Listener() = default;
    // An order to make it has been carried out; what it took of the GPU's memory.
    virtual void OnCommunicatorMade(uint64_t request, int64_t bytes) = 0;
    // Nothing is left of it. The status is that of the order: OK for the end that was ordered.
    virtual void OnCommunicatorGone(uint64_t request, const absl::Status& status) = 0;
    // Nothing is left of it, and nobody ordered anything.
    virtual void OnCommunicatorLost(const CommunicatorKey& key, const absl::Status& cause) = 0;
    // Only the end of the process ends it.
    virtual void OnCommunicatorHung(const CommunicatorKey& key, const absl::Status& cause) = 0;
    // Each change of one that was ready. It may be gone already, and only serves to know it again.
    virtual void OnCommunicatorChange(const Communicator& communicator, CommunicatorState state,
                                      const absl::Status& cause) = 0;
  };

  // All references must outlive it. The times of `table` to make and to finalize are longer than
  // any order's.
  CommunicatorOrders(const Clock& clock, CommunicatorTable& table, Listener& listener)
      : clock_(clock), table_(table), listener_(listener) {}

  // Begin to carry out an order of this request, or say why not; Poll tells the rest. As in
  // CommunicatorTable. One that takes longer than its time is stopped.
  absl::Status Begin(uint64_t request, const GpuRequest::CreateCommunicator& create);
  absl::Status Begin(uint64_t request, const GpuRequest::DestroyCommunicator& destroy);
  // NotFound when nothing is left of it, which is what was wanted.
  absl::Status Begin(uint64_t request, const GpuRequest::StopCommunicator& stop);

  void Poll();
  // Whether something is expected to change.
  bool is_busy() const { return !orders_.empty(); }
  // Whether anything is there that may change.
  bool is_empty() const { return table_.List().empty(); }

  // Null unless it can be used.
  Communicator* Find(const CommunicatorKey& key) { return table_.Find(key); }
  // Ends one that its user cannot go on with; told as lost.
  void Stop(const Communicator& communicator, const absl::Status& why);

 private:
  enum class Kind : uint8_t { kCreate, kDestroy, kStop };
  struct Order {
    uint64_t request = 0;
    Kind kind = Kind::kCreate;
    CommunicatorKey key;
    absl::Duration deadline;  // on the monotonic clock
  };

  void StopLate();
  void OnChange(const CommunicatorTable::Change& change);
  void OnGone(const CommunicatorTable::Change& change);
  bool HasOrder(const CommunicatorKey& key) const;

  const Clock& clock_;
  CommunicatorTable& table_;
  Listener& listener_;
  std::list<Order> orders_;  // in the order in which they came
  std::map<CommunicatorKey, const Communicator*> ready_;
};

}  // namespace crossmesh
