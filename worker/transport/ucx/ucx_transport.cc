#include "worker/transport/ucx/ucx_transport.h"

#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "worker/transport/boot_id.h"

#include <cstring>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr unsigned kActiveMessageId = 1;
// Calls of ucp_worker_progress in one Progress, so that a flood does not keep the loop from its
// other work.
constexpr int kProgressMax = 32;

iovec OnlyPiece(Pieces pieces) {
  CHECK_LE(pieces.size(), 1u);
  return pieces.empty() ? iovec{} : pieces[0];
}

}  // namespace

// Holds UCX's data of one active message: the payload if that was eager, else the descriptor by
// which it is fetched.
class UcxTransport::Message final : public PooledMessage {
 public:
  Message(UcxTransport& transport, const MessageHeader& header, const ucp_am_recv_param_t& param,
          void* data)
      : transport_(transport),
        header_(header),
        rendezvous_((param.recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0),
        endpoint_((param.recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) != 0 ? param.reply_ep
                                                                           : nullptr),
        data_(data) {}
  ~Message() override {
    if (data_ != nullptr) ucp_am_data_release(transport_.worker_.get(), data_);
  }

  const MessageHeader& header() const override { return header_; }

  void Receive(Pieces pieces, Ticket ticket) override {
    const iovec into = OnlyPiece(pieces);
    CHECK_EQ(into.iov_len, header_.payload_bytes);
    CHECK(!std::exchange(received_, true)) << "the message was received already";
    void* data = std::exchange(data_, nullptr);
    if (rendezvous_) {
      transport_.Receive(data, endpoint_, into, ticket);
    } else {
      transport_.ReceiveEager(data, endpoint_, into, ticket);
    }
  }

 private:
  UcxTransport& transport_;
  const MessageHeader header_;
  const bool rendezvous_;
  const ucp_ep_h endpoint_;  // by which the sender is reached
  void* data_;               // none when there is no payload, or after Receive
  bool received_ = false;
};

absl::StatusOr<std::unique_ptr<UcxTransport>> UcxTransport::Create(TransportSink& sink,
                                                                   const Options& options) {
  ASSIGN_OR_RETURN(std::string boot_id, ReadBootId());
  ASSIGN_OR_RETURN(UcxWorker worker, UcxWorker::Create(options));
  UcxAddress address = {.shared_memory = options.shared_memory,
                        .boot_id = std::move(boot_id),
                        .worker_address = worker.address()};
  std::unique_ptr<UcxTransport> transport(
      new UcxTransport(sink, std::move(address), std::move(worker)));
  RETURN_IF_ERROR(transport->ListenForMessages());
  return transport;
}

UcxTransport::UcxTransport(TransportSink& sink, UcxAddress address, UcxWorker worker)
    : sink_(sink),
      own_address_(std::move(address)),
      encoded_address_(own_address_.Encode()),
      worker_(std::move(worker)) {}

UcxTransport::~UcxTransport() {
  // Messages hold data of UCX, which is given back while the worker is there; those of the last
  // progress too.
  events_.clear();
  for (const auto& [peer, connection] : connections_) Close(*connection);
  while (!UcxIsDone()) ucp_worker_progress(worker_.get());
  events_.clear();
}

bool UcxTransport::UcxIsDone() const {
  for (const auto& [peer, connection] : connections_) {
    if (connection->state != Connection::State::kClosed) return false;
  }
  // Receives from peers without a connection of ours end with UCX's worker.
  for (const Operation& operation : operations_) {
    if (operation.connection != nullptr && !operation.done) return false;
  }
  return true;
}

absl::Status UcxTransport::ListenForMessages() {
  ucp_am_handler_param_t param = {};
  param.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                     UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  param.id = kActiveMessageId;
  param.flags = UCP_AM_FLAG_WHOLE_MSG | UCP_AM_FLAG_PERSISTENT_DATA;
  param.cb = &OnActiveMessage;
  param.arg = this;
  const ucs_status_t status = ucp_worker_set_am_recv_handler(worker_.get(), &param);
  return status == UCS_OK ? absl::OkStatus() : UcxError("listening for messages", status);
}

absl::StatusOr<PeerId> UcxTransport::Connect(absl::string_view address) {
  ASSIGN_OR_RETURN(const UcxAddress to, UcxAddress::Decode(address));
  auto connection = std::make_unique<Connection>();
  connection->transport = this;
  connection->peer = PeerId(++peers_made_);
  const bool same_host = to.boot_id == own_address_.boot_id;
  connection->link =
      same_host && to.shared_memory && own_address_.shared_memory ? "shm" : worker_.network();

  ucp_ep_params_t params = {};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(to.worker_address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler = {.cb = &OnEndpointFailed, .arg = connection.get()};
  const ucs_status_t status = ucp_ep_create(worker_.get(), &params, &connection->endpoint);
  const PeerId peer = connection->peer;
  if (status != UCS_OK) {  // no peer is there: told like any other loss
    connection->failure = UcxError("connecting", status);
    SetClosed(*connection);
    connections_[peer] = std::move(connection);
    return peer;
  }

  // If the peer was faster, this is the connection that it made, and it may be in use.
  for (Operation& operation : operations_) {
    if (operation.endpoint != connection->endpoint || operation.connection != nullptr) continue;
    operation.connection = connection.get();
    ++connection->operations;
  }
  by_endpoint_[connection->endpoint] = connection.get();
  connections_[peer] = std::move(connection);
  return peer;
}

absl::string_view UcxTransport::link(PeerId peer) const {
  const Connection* connection = FindConnection(peer);
  CHECK(connection != nullptr) << "peer " << peer << " is not connected";
  return connection->link;
}

void UcxTransport::Send(PeerId peer, const MessageHeader& header, Pieces pieces, Ticket ticket) {
  const iovec payload = OnlyPiece(pieces);
  Connection* connection = FindConnection(peer);
  const bool open = connection != nullptr && connection->state == Connection::State::kOpen;
  Operation& operation =
      NewOperation(/*receive=*/false, ticket, open ? connection->endpoint : nullptr);
  if (!open) return Finish(operation, UCS_ERR_NOT_CONNECTED);
  operation.header = header;
  operation.header.payload_bytes = payload.iov_len;

  const bool eager = payload.iov_len <= size_t{kEagerBytesMax};
  ucp_request_param_t param = {};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                       UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  param.flags = UCP_AM_SEND_FLAG_REPLY | (eager ? UCP_AM_SEND_FLAG_EAGER : UCP_AM_SEND_FLAG_RNDV);
  param.cb.send = &OnSendDone;
  param.user_data = &operation;
  param.memory_type = UCS_MEMORY_TYPE_HOST;
  const ucs_status_ptr_t request =
      ucp_am_send_nbx(operation.endpoint, kActiveMessageId, &operation.header,
                      sizeof(operation.header), payload.iov_base, payload.iov_len, &param);
  if (!UCS_PTR_IS_PTR(request)) Finish(operation, UCS_PTR_RAW_STATUS(request));
}

void UcxTransport::Disconnect(PeerId peer) {
  Connection* connection = FindConnection(peer);
  if (connection == nullptr) return;
  connection->disconnected = true;
  Close(*connection);
}

void UcxTransport::Break(PeerId peer, const absl::Status& why) {
  if (Connection* connection = FindConnection(peer)) Fail(*connection, why);
}

int UcxTransport::Progress() {
  int handled = 0;
  for (int i = 0; i < kProgressMax; ++i) {
    const unsigned progressed = ucp_worker_progress(worker_.get());
    if (progressed == 0) break;
    handled += static_cast<int>(progressed);
  }
  return handled + RunEvents();
}

bool UcxTransport::Arm() { return events_.empty() && ucp_worker_arm(worker_.get()) == UCS_OK; }

UcxTransport::Connection* UcxTransport::FindConnection(PeerId peer) const {
  const auto found = connections_.find(peer);
  return found == connections_.end() || found->second->disconnected ? nullptr : found->second.get();
}

UcxTransport::Operation& UcxTransport::NewOperation(bool receive, Ticket ticket,
                                                    ucp_ep_h endpoint) {
  if (free_operations_.empty()) free_operations_.push_back(&operations_.emplace_back());
  Operation& operation = *free_operations_.back();
  free_operations_.pop_back();
  const auto found = by_endpoint_.find(endpoint);
  Connection* connection = found == by_endpoint_.end() ? nullptr : found->second;
  if (connection != nullptr) ++connection->operations;
  operation.transport = this;
  operation.receive = receive;
  operation.done = false;
  operation.ticket = ticket;
  operation.connection = connection;
  operation.endpoint = endpoint;
  return operation;
}

void UcxTransport::Finish(Operation& operation, ucs_status_t status) {
  operation.done = true;
  operation.result = status;
  events_.push_back({.finished = &operation});
}

void UcxTransport::Receive(void* descriptor, ucp_ep_h endpoint, const iovec& into, Ticket ticket) {
  Operation& operation = NewOperation(/*receive=*/true, ticket, endpoint);
  ucp_request_param_t param = {};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                       UCP_OP_ATTR_FIELD_MEMORY_TYPE | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  param.cb.recv_am = &OnReceiveDone;
  param.user_data = &operation;
  param.memory_type = UCS_MEMORY_TYPE_HOST;
  const ucs_status_ptr_t request =
      ucp_am_recv_data_nbx(worker_.get(), descriptor, into.iov_base, into.iov_len, &param);
  if (!UCS_PTR_IS_PTR(request)) Finish(operation, UCS_PTR_RAW_STATUS(request));
}

void UcxTransport::ReceiveEager(void* data, ucp_ep_h endpoint, const iovec& into, Ticket ticket) {
  if (data != nullptr) {
    if (into.iov_base != nullptr) std::memcpy(into.iov_base, data, into.iov_len);
    ucp_am_data_release(worker_.get(), data);
  }
  Finish(NewOperation(/*receive=*/true, ticket, endpoint), UCS_OK);
}

int UcxTransport::RunEvents() {
  if (events_.empty()) return 0;
  running_.swap(events_);
  for (Event& event : running_) {
    if (event.message != nullptr) {
      sink_.OnMessage(std::move(event.message));
    } else if (event.finished != nullptr) {
      TellFinished(*event.finished);
    } else if (event.failed != nullptr) {
      Close(*event.failed);
    } else {
      event.closed->closed_told = true;
      ForgetIfDone(*event.closed);
    }
  }
  const int handled = static_cast<int>(running_.size());
  running_.clear();
  return handled;
}

void UcxTransport::TellFinished(Operation& operation) {
  const absl::Status status = ToStatus(operation);
  Connection* connection = operation.connection;
  const Ticket ticket = operation.ticket;
  const bool receive = operation.receive;
  // Free before the sink is told, which may begin another one from inside its call.
  operation.endpoint = nullptr;
  operation.connection = nullptr;
  free_operations_.push_back(&operation);
  if (receive) {
    sink_.OnReceived(ticket, status);
  } else {
    sink_.OnSent(ticket, status);
  }
  if (connection == nullptr) return;
  --connection->operations;
  ForgetIfDone(*connection);
}

absl::Status UcxTransport::ToStatus(const Operation& operation) const {
  if (operation.result == UCS_OK) return absl::OkStatus();
  if (operation.connection != nullptr && operation.connection->disconnected) {
    return absl::CancelledError("disconnected");
  }
  return UcxError(operation.receive ? "receiving" : "sending", operation.result);
}

void UcxTransport::Fail(Connection& connection, absl::Status failure) {
  if (connection.state != Connection::State::kOpen) return;
  connection.state = Connection::State::kFailed;
  connection.failure = std::move(failure);
  events_.push_back({.failed = &connection});
}

void UcxTransport::Close(Connection& connection) {
  if (connection.state == Connection::State::kClosing ||
      connection.state == Connection::State::kClosed) {
    return;
  }
  connection.state = Connection::State::kClosing;
  by_endpoint_.erase(connection.endpoint);
  ucp_request_param_t param = {};
  param.op_attr_mask =
      UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  param.cb.send = &OnEndpointClosed;
  param.user_data = &connection;
  const ucs_status_ptr_t request = ucp_ep_close_nbx(connection.endpoint, &param);
  if (!UCS_PTR_IS_PTR(request)) SetClosed(connection);
}

void UcxTransport::SetClosed(Connection& connection) {
  connection.state = Connection::State::kClosed;
  events_.push_back({.closed = &connection});
}

// The last thing that is told of a peer, after all its operations.
void UcxTransport::ForgetIfDone(Connection& connection) {
  if (!connection.closed_told || connection.operations > 0) return;
  const auto node = connections_.extract(connection.peer);
  if (!connection.disconnected) sink_.OnPeerLost(connection.peer, connection.failure);
}

ucs_status_t UcxTransport::OnActiveMessage(void* transport, const void* header,
                                           size_t header_length, void* data, size_t length,
                                           const ucp_am_recv_param_t* param) {
  auto& self = *static_cast<UcxTransport*>(transport);
  MessageHeader copy;
  if (header_length == sizeof(copy)) std::memcpy(&copy, header, sizeof(copy));
  if (header_length != sizeof(copy) || copy.payload_bytes != length) {
    LogWarning("ucx_message_malformed", {{"header_bytes", static_cast<int64_t>(header_length)},
                                         {"payload_bytes", static_cast<int64_t>(length)}});
    return UCS_OK;
  }
  // With nothing to keep UCX frees its descriptor when this returns.
  void* kept = length > 0 ? data : nullptr;
  self.events_.push_back(
      {.message = std::unique_ptr<Message>(new (self.pool_) Message(self, copy, *param, kept))});
  return kept == nullptr ? UCS_OK : UCS_INPROGRESS;
}

void UcxTransport::OnSendDone(void* request, ucs_status_t status, void* operation) {
  ucp_request_free(request);
  auto& done = *static_cast<Operation*>(operation);
  done.transport->Finish(done, status);
}

void UcxTransport::OnReceiveDone(void* request, ucs_status_t status, size_t /*length*/,
                                 void* operation) {
  OnSendDone(request, status, operation);
}

void UcxTransport::OnEndpointFailed(void* connection, ucp_ep_h /*endpoint*/, ucs_status_t status) {
  auto& failed = *static_cast<Connection*>(connection);
  failed.transport->Fail(failed, UcxError("the connection to the peer", status));
}

void UcxTransport::OnEndpointClosed(void* request, ucs_status_t /*status*/, void* connection) {
  ucp_request_free(request);
  auto& closed = *static_cast<Connection*>(connection);
  closed.transport->SetClosed(closed);
}

}  // namespace crossmesh
