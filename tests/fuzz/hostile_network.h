#pragma once

#include "tests/fuzz/fuzz_input.h"
#include "worker/transport/transport.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace crossmesh {

// Connects transports of one thread, and does to each message what a fuzzer's input says: delivers,
// drops, repeats, delays or changes it. Once the input is used up it delivers everything.
// Thread-compatible; outlives its transports' messages.
class HostileNetwork {
 public:
  explicit HostileNetwork(FuzzInput& input) : input_(input) {}
  HostileNetwork(const HostileNetwork&) = delete;
  HostileNetwork& operator=(const HostileNetwork&) = delete;

  // Transports are numbered from 0, in this order; `sink` is that of the next.
  std::unique_ptr<Transport> AddSource(TransportSink& sink);

  // Does one thing that is to be done, if there is any.
  bool Step();
  // Was any message dropped or changed?
  bool harmed() const { return harmed_; }

 private:
  class HostileTransport;
  class Message;

  // The transport that is told that a payload may be reused.
  struct Sender {
    size_t transport = 0;
    Ticket ticket = 0;
  };
  struct Envelope {
    size_t to = 0;
    MessageHeader header;
    std::vector<std::byte> payload;
    std::optional<Sender> sender;  // none: a forged message
  };
  struct Completion {
    size_t transport = 0;
    Ticket ticket = 0;
    bool received = false;  // else sent
  };

  void Deliver(Envelope envelope);
  void DeliverOrHarm(Envelope envelope);
  void ChangeHeader(MessageHeader& header);
  void ChangePayload(Envelope& envelope);
  void Complete(const Completion& completion);

  FuzzInput& input_;
  bool harmed_ = false;
  std::vector<TransportSink*> sinks_;
  std::deque<Envelope> underway_;
  std::deque<Completion> completions_;
};

}  // namespace crossmesh
