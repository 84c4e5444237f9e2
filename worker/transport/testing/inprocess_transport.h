#pragma once

#include "worker/transport/message_pool.h"
#include "worker/transport/testing/inprocess_fabric.h"
#include "worker/transport/transport.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// A transport between threads of one process: pure rendezvous, the receiver's loop copies from
// the sender's payload during its Progress.
class InProcessTransport final : public Transport {
 public:
  // Both must outlive the transport. ResourceExhausted: no file descriptors left.
  static absl::StatusOr<std::unique_ptr<InProcessTransport>> Create(InProcessFabric& fabric,
                                                                    TransportSink& sink);
  ~InProcessTransport() override;

  absl::string_view name() const override { return "inprocess"; }
  const std::string& address() const override { return endpoint_.address; }
  int64_t eager_bytes_max() const override { return 0; }
  // Few, so that tests come to both sides of it.
  int pieces_max() const override { return 4; }
  int useful_pieces_max(PeerId /*peer*/) const override { return 4; }
  absl::StatusOr<PeerId> Connect(absl::string_view address) override;
  absl::string_view link(PeerId /*peer*/) const override { return "local"; }
  void Send(PeerId peer, const MessageHeader& header, Pieces payload, Ticket ticket) override;
  void Disconnect(PeerId peer) override;
  void Break(PeerId peer, const absl::Status& why) override;
  int Progress() override;
  int event_fd() const override { return endpoint_.event_fd.fd(); }
  bool Arm() override;

 private:
  class Message;
  struct PendingReceive {
    InProcessFabric::Transfer* transfer = nullptr;
    Pieces into;
    Ticket ticket = 0;
  };

  InProcessTransport(InProcessFabric& fabric, TransportSink& sink,
                     InProcessFabric::Endpoint& endpoint)
      : fabric_(fabric), sink_(sink), endpoint_(endpoint) {}

  int RunReceives();
  absl::Status RunReceive(const PendingReceive& receive);

  InProcessFabric& fabric_;
  TransportSink& sink_;
  InProcessFabric::Endpoint& endpoint_;
  MessagePool pool_;
  std::vector<PendingReceive> receives_;
  std::vector<PendingReceive> running_;  // swapped with receives_, so that both keep their memory
};

}  // namespace crossmesh
