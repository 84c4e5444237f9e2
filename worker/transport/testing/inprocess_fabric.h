#pragma once

#include "common/base/event_fd.h"
#include "common/base/mutex.h"
#include "worker/transport/testing/fault_plan.h"
#include "worker/transport/transport.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <absl/container/flat_hash_map.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// What the transports of one process are connected by; a network in memory with faults on demand.
// Thread-safe. Outlives its transports.
//
// The k-th Connect from a to b and the k-th from b to a are the two sides of one connection, as
// with UCX: when it breaks, both sides lose it.
class InProcessFabric {
 public:
  explicit InProcessFabric(FaultPlan faults = {}) : faults_(faults) {}
  InProcessFabric(const InProcessFabric&) = delete;
  InProcessFabric& operator=(const InProcessFabric&) = delete;

  // Faults for messages from one address to another, on links connected from now on, in place of
  // those of the whole fabric.
  void SetFaults(absl::string_view from, absl::string_view to, const FaultPlan& faults);

  // Breaks all connections between two addresses, as a network does.
  void Cut(absl::string_view a, absl::string_view b);

  // The endpoint is gone from one moment to the next, as a process that is killed: its peers lose
  // it, and it loses them. A peer that connects to it afterwards loses it as well.
  void Kill(absl::string_view address);

 private:
  friend class InProcessTransport;

  struct Connection;

  // One message from Send until both ends have finished with it; then the place is used again.
  struct Transfer {
    enum class State { kOnTheWay, kAnnounced, kCopying, kDone };
    Connection* connection = nullptr;
    int sending_side = 0;
    MessageHeader header;
    Pieces payload;     // the sender's, until the state is kDone
    Ticket ticket = 0;  // the sender's
    MessageFaults faults;
    State state = State::kOnTheWay;
    bool held = false;  // by the receiver: a message not destroyed, or a receive not finished
  };

  struct Completion {
    Ticket ticket = 0;
    absl::Status status;
  };
  struct Loss {
    PeerId peer;
    absl::Status status;
  };
  using Event = std::variant<Completion, Transfer*, Loss>;

  struct Endpoint {
    Endpoint(uint64_t new_number, EventFd new_event_fd);

    const uint64_t number;  // counted from 0 in the order of Attach
    const std::string address;
    EventFd event_fd;
    bool alive = true;
    bool armed = false;  // the next event has to set the event descriptor
    uint64_t peers_made = 0;
    absl::flat_hash_map<PeerId, std::pair<Connection*, int>> peers;  // and which side we are
    // What to tell the sink, in this order: the ends of transfers come before the loss of their
    // connection.
    std::vector<Completion> sent;
    std::vector<Transfer*> inbox;  // as sent
    std::vector<Loss> lost;
  };

  struct Side {
    Endpoint* endpoint = nullptr;
    FaultSequence faults;        // of what this side sends
    std::optional<PeerId> peer;  // while this side is connected
    absl::Status closed;         // why, as this side sees it; OK while open
  };
  struct Connection {
    Side sides[2];
    bool open = true;
    int copying = 0;  // transfers; the loss is reported when none is left
  };

  // For InProcessTransport. An endpoint lives as long as the fabric.
  absl::StatusOr<Endpoint*> Attach();
  // Closes all its connections and waits until no peer copies from its payloads any more.
  void Detach(Endpoint& endpoint);
  absl::StatusOr<PeerId> Connect(Endpoint& endpoint, absl::string_view address);
  void Disconnect(Endpoint& endpoint, PeerId peer);
  void Break(Endpoint& endpoint, PeerId peer, absl::string_view why);
  void Send(Endpoint& endpoint, PeerId peer, const MessageHeader& header, Pieces payload,
            Ticket ticket);
  // One step in the time of messages that are held back.
  void Tick(Endpoint& endpoint);
  std::optional<Event> NextEvent(Endpoint& endpoint);
  bool Arm(Endpoint& endpoint);
  // May the receiver copy the payload now? If so, EndCopy follows. Otherwise the transfer is over.
  absl::Status BeginCopy(Transfer& transfer);
  void EndCopy(Transfer& transfer);
  // The receiver does not want the payload.
  void Drop(Transfer& transfer);

  Endpoint* FindLocked(absl::string_view address) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // A connection that `to` made and `from` has not yet answered, or a new one; and which side of
  // it is `from`'s.
  std::pair<Connection*, int> ConnectLocked(Endpoint& from, Endpoint& to)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Side MakeSideLocked(Endpoint& from, const Endpoint& to) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CloseLocked(Connection& connection, const absl::Status& status_0,
                   const absl::Status& status_1) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void BreakLocked(Connection& connection, absl::string_view why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RemoveLocked(Endpoint& endpoint, absl::string_view why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ReportLossLocked(Connection& connection) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Transfer& NewTransferLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The sender's part of the transfer is over.
  void FinishLocked(Transfer& transfer, const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The receiver's part of the transfer is over.
  void ReleaseLocked(Transfer& transfer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Transfer* TakeMessageLocked(Endpoint& endpoint) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static void Wake(Endpoint& endpoint);

  const FaultPlan faults_;

  // Also guards what these hold, except for what a transfer's Send has set: that changes only when
  // neither end knows the transfer.
  Mutex mutex_;
  CondVar copies_ended_;
  // Deques, for their elements stay where they are.
  std::deque<Endpoint> endpoints_ ABSL_GUARDED_BY(mutex_);
  std::deque<Connection> connections_ ABSL_GUARDED_BY(mutex_);
  std::deque<Transfer> transfers_ ABSL_GUARDED_BY(mutex_);
  std::vector<Transfer*> free_transfers_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::pair<std::string, std::string>, FaultPlan> link_faults_
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace crossmesh
