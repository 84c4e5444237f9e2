#pragma once

#include "worker/transport/socket/socket_transport.h"
#include "worker/transport/socket/testing/recording_sink.h"

#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include <absl/functional/function_ref.h>
#include <absl/time/time.h>

namespace crossmesh {

// A SocketTransport at the interface "lo" without a loop: it does what a test makes it do, one step
// after the other. Thread-compatible.
class DrivenTransport {
 public:
  struct Options {
    bool shared_memory = false;
    absl::Duration handshake_limit = absl::Hours(1);
  };

  DrivenTransport() : DrivenTransport(Options()) {}
  explicit DrivenTransport(const Options& options);
  ~DrivenTransport() { sink.messages.clear(); }
  DrivenTransport(const DrivenTransport&) = delete;
  DrivenTransport& operator=(const DrivenTransport&) = delete;

  SocketTransport& operator*() const { return *transport_; }
  SocketTransport* operator->() const { return transport_.get(); }

  // The peer that a connection to `other` makes; the test fails if there is none.
  PeerId ConnectTo(const DrivenTransport& other);
  // Payloads and destinations stay until the end of the test.
  void Send(PeerId peer, Ticket ticket, std::string payload);
  void Receive(size_t index, Ticket ticket);

  // Has the event descriptor something? Waits for that, or only looks.
  bool WaitReadable() const { return IsReadable(30'000); }
  bool IsReadable() const { return IsReadable(0); }
  // One step, once the event descriptor has something.
  int WaitAndProgress();
  // Steps of all of them until `done`; false when it does not come.
  static bool Run(std::initializer_list<DrivenTransport*> all, absl::FunctionRef<bool()> done);

  RecordingSink sink;

 private:
  struct Memory {
    std::string bytes;
    std::vector<iovec> pieces;
  };

  bool IsReadable(int wait_ms) const;
  Memory& Keep(std::string bytes);

  std::vector<std::unique_ptr<Memory>> kept_;
  std::unique_ptr<SocketTransport> transport_;
};

}  // namespace crossmesh
