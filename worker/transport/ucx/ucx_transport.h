#pragma once

#include "worker/transport/message_pool.h"
#include "worker/transport/transport.h"
#include "worker/transport/ucx/ucx_address.h"
#include "worker/transport/ucx/ucx_worker.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <absl/container/flat_hash_map.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>
#include <ucp/api/ucp.h>

namespace crossmesh {

// A transport over UCX: TCP or RDMA between hosts, and inside a host direct reads of the sender's
// memory. Headers and small payloads travel as eager active messages, larger payloads by
// rendezvous.
//
// UCX's callbacks only write events down; the sink is told after ucp_worker_progress has returned,
// when every call into UCX is allowed again. A buffer is free when UCX has completed its request:
// where a connection fails, UCX does so only after it has destroyed the connection's sockets.
//
// With shared memory only the owner of a buffer ever writes to it: the receiver reads the sender's.
// A peer that does not know yet that this side has disconnected may therefore read a payload late,
// and find what it holds by then; the checksums of its operation tell.
class UcxTransport final : public Transport {
 public:
  using Options = UcxWorker::Options;

  // `sink` must outlive the transport. InvalidArgument, Unavailable: as UcxWorker::Create.
  // Internal: the host's boot id cannot be read.
  static absl::StatusOr<std::unique_ptr<UcxTransport>> Create(TransportSink& sink,
                                                              const Options& options);
  // All messages must have been destroyed.
  ~UcxTransport() override;

  absl::string_view name() const override { return "ucx"; }
  const std::string& address() const override { return encoded_address_; }
  int64_t eager_bytes_max() const override { return kEagerBytesMax; }
  // UCX copies what is in pieces through buffers of its own, and never reads it from another
  // process's memory.
  int pieces_max() const override { return 1; }
  int useful_pieces_max(PeerId /*peer*/) const override { return 1; }
  absl::StatusOr<PeerId> Connect(absl::string_view address) override;
  absl::string_view link(PeerId peer) const override;
  void Send(PeerId peer, const MessageHeader& header, Pieces payload, Ticket ticket) override;
  void Disconnect(PeerId peer) override;
  void Break(PeerId peer, const absl::Status& why) override;
  int Progress() override;
  int event_fd() const override { return worker_.event_fd(); }
  bool Arm() override;

 private:
  // With our header and UCX's this is one segment of every transport.
  static constexpr int64_t kEagerBytesMax = 4096;

  class Message;

  struct Connection {
    // Failed: UCX has said so, and it is to be closed. Closing: UCX was told to close it. Closed:
    // UCX knows it no more.
    enum class State { kOpen, kFailed, kClosing, kClosed };
    UcxTransport* transport = nullptr;
    PeerId peer;
    ucp_ep_h endpoint = nullptr;
    absl::string_view link;  // a constant
    State state = State::kOpen;
    bool disconnected = false;  // by Disconnect: the sink hears of it no more
    absl::Status failure;
    int operations = 0;        // begun and not yet told to the sink
    bool closed_told = false;  // the event of its closing has been handled
  };

  // A send or a receive that UCX works on. Its address stays, it is used again.
  struct Operation {
    UcxTransport* transport = nullptr;
    bool receive = false;
    Ticket ticket = 0;
    Connection* connection = nullptr;  // none for receives from peers we are not connected to
    ucp_ep_h endpoint = nullptr;       // none when free
    MessageHeader header;              // of a send: UCX reads it until the request completes
    bool done = false;                 // UCX has completed it, with this:
    ucs_status_t result = UCS_OK;
  };

  // What UCX's callbacks found, one of these.
  struct Event {
    std::unique_ptr<IncomingMessage> message;
    Operation* finished = nullptr;
    Connection* failed = nullptr;
    Connection* closed = nullptr;  // the last event of a connection, but for its operations
  };

  UcxTransport(TransportSink& sink, UcxAddress address, UcxWorker worker);

  absl::Status ListenForMessages();
  Connection* FindConnection(PeerId peer) const;
  Operation& NewOperation(bool receive, Ticket ticket, ucp_ep_h endpoint);
  void Finish(Operation& operation, ucs_status_t status);
  void Receive(void* descriptor, ucp_ep_h endpoint, const iovec& into, Ticket ticket);
  void ReceiveEager(void* data, ucp_ep_h endpoint, const iovec& into, Ticket ticket);

  int RunEvents();
  void TellFinished(Operation& operation);
  absl::Status ToStatus(const Operation& operation) const;
  void Fail(Connection& connection, absl::Status failure);
  void Close(Connection& connection);
  void SetClosed(Connection& connection);
  void ForgetIfDone(Connection& connection);
  bool UcxIsDone() const;

  static ucs_status_t OnActiveMessage(void* transport, const void* header, size_t header_length,
                                      void* data, size_t length, const ucp_am_recv_param_t* param);
  static void OnSendDone(void* request, ucs_status_t status, void* operation);
  static void OnReceiveDone(void* request, ucs_status_t status, size_t length, void* operation);
  static void OnEndpointFailed(void* connection, ucp_ep_h endpoint, ucs_status_t status);
  static void OnEndpointClosed(void* request, ucs_status_t status, void* connection);

  TransportSink& sink_;
  const UcxAddress own_address_;
  const std::string encoded_address_;
  UcxWorker worker_;
  uint64_t peers_made_ = 0;
  absl::flat_hash_map<PeerId, std::unique_ptr<Connection>> connections_;
  absl::flat_hash_map<ucp_ep_h, Connection*> by_endpoint_;
  std::deque<Operation> operations_;
  std::vector<Operation*> free_operations_;
  MessagePool pool_;
  std::vector<Event> events_;
  std::vector<Event> running_;  // swapped with events_, so that both keep their memory
};

}  // namespace crossmesh
