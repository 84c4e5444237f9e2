#pragma once

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/event_loop/event_loop.h"
#include "worker/transport/testing/sealed_memory.h"
#include "worker/transport/transport.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <absl/container/flat_hash_map.h>
#include <absl/functional/function_ref.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// Makes one transport of a network; all that one function makes can reach each other.
using MakeTransport =
    std::function<absl::StatusOr<std::unique_ptr<Transport>>(TransportSink& sink)>;

// What a sink was told, written down.
struct TransportRecord {
  struct Received {
    MessageHeader header;
    absl::Status status;
    std::vector<std::byte> payload;
  };
  struct Lost {
    PeerId peer;
    absl::Status status;
    int sends_open = 0;  // to this peer, when its loss was told
  };

  std::vector<MessageHeader> announced;
  std::vector<Received> received;  // as they completed
  absl::flat_hash_map<Ticket, absl::Status> sent;
  std::vector<Lost> lost;
  int receives_open = 0;
  std::vector<std::string> violations;  // of the contract of Transport
};

// A transport on an event loop of its own, driven by a test from another thread. It owns all
// payloads, lends every second large one, and overwrites and reclaims them as soon as it may. Its
// methods are for the test's thread, and do not return before the loop has run them.
class TransportNode final : private TransportSink {
 public:
  enum class Arrival { kReceive, kPark, kDrop };  // what becomes of a message that comes in

  static absl::StatusOr<std::unique_ptr<TransportNode>> Create(const MakeTransport& make,
                                                               Arrival arrival);
  ~TransportNode() override;

  const std::string& address() const { return transport_->address(); }
  absl::StatusOr<PeerId> Connect(absl::string_view address);
  absl::string_view Link(PeerId peer);
  int Lanes(PeerId peer);
  void Disconnect(PeerId peer);
  void Break(PeerId peer, const absl::Status& why);
  // The ticket is that of the first; the others follow.
  Ticket Send(PeerId peer, const MessageHeader& header, std::vector<std::byte> payload);
  // Sends many as one step of the loop, channel 0 and sequence 0, 1, ...
  Ticket SendMany(PeerId peer, int count, int64_t bytes);
  // Pending messages, numbered from 0 as announced, each once.
  void ReceiveHeld(size_t first, size_t count = 1);
  // Receives one; `then` runs before the loop does anything else.
  void ReceiveHeldThen(size_t index, absl::FunctionRef<void()> then);
  void DropHeld(size_t index);
  // Receives all held messages and disconnects before the loop does anything else.
  void ReceiveHeldAndDisconnect(PeerId peer);

  // Waits until `condition` holds; false when it does not for a minute.
  bool WaitUntil(absl::FunctionRef<bool(const TransportRecord&)> condition);
  TransportRecord record() const;
  // Are the destinations of receives that failed as the test left them?
  bool FailedDestinationsUntouched() const;

 private:
  struct Sending {
    PeerId peer;
    std::vector<std::byte> payload;
    std::unique_ptr<SealedMemory> lent;  // has the payload instead of the vector
    std::vector<iovec> pieces;

    std::span<std::byte> memory() { return lent == nullptr ? std::span(payload) : lent->bytes(); }
  };
  struct Receiving {
    MessageHeader header;
    std::vector<std::byte> payload;
    std::vector<iovec> pieces;
  };

  explicit TransportNode(Arrival arrival) : arrival_(arrival) {}

  void OnMessage(std::unique_ptr<IncomingMessage> message) override;
  void OnSent(Ticket ticket, const absl::Status& status) override;
  void OnReceived(Ticket ticket, const absl::Status& status) override;
  void OnPeerLost(PeerId peer, const absl::Status& status) override;

  // Runs `body` on the loop, as a call into the transport: no callback may come from inside.
  void Call(absl::FunctionRef<void()> body);
  void CheckNotInCall();
  void SendOnLoop(PeerId peer, const MessageHeader& header, std::vector<std::byte> payload);
  void ReceiveOnLoop(std::unique_ptr<IncomingMessage> message);
  // The memory in as many pieces as the transport takes, of random sizes.
  std::vector<iovec> Cut(std::span<std::byte> memory);
  void Record(absl::FunctionRef<void(TransportRecord&)> change);

  const Arrival arrival_;
  const RealClock clock_{};
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<Transport> transport_;

  // Confined to the loop.
  bool in_call_ = false;
  Ticket last_ticket_ = 0;
  std::mt19937_64 random_{20261121};
  absl::flat_hash_map<Ticket, Sending> sending_;
  absl::flat_hash_map<Ticket, Receiving> receiving_;
  std::vector<std::unique_ptr<IncomingMessage>> held_;
  std::vector<std::vector<std::byte>> failed_destinations_;

  mutable Mutex mutex_;
  CondVar changed_;
  TransportRecord record_ ABSL_GUARDED_BY(mutex_);
};

std::vector<std::byte> RandomBytes(std::mt19937_64& random, int64_t count);

}  // namespace crossmesh
