#include "worker/transport/socket/socket_transport.h"

#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "worker/transport/socket/network_interface.h"
#include "worker/transport/socket/process_file.h"
#include "worker/transport/socket/tcp_socket.h"

#include <algorithm>
#include <array>
#include <cerrno>

#include <absl/strings/str_cat.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

namespace crossmesh {
namespace {

// One Progress moves about so much, so that a flood does not keep the loop from its other work;
// all streams that are ready have an equal share, but for one that is not worth a system call.
constexpr size_t kProgressBytesMax = 4 << 20;
constexpr size_t kShareBytesMin = 64 << 10;
constexpr size_t kShareBytesMax = 1 << 20;
constexpr int kEventsMax = 16;
// Connections without handshake: each costs memory, and any process can make them.
constexpr size_t kGreetingMax = 256;

size_t ShareBytes(size_t streams) {
  return std::clamp(kProgressBytesMax / std::max<size_t>(streams, 1), kShareBytesMin,
                    kShareBytesMax);
}

// The other side has found that it shares memory with this one; here the system may not agree.
bool CanMapMemoryOf(const SocketHandshake& handshake) {
  const absl::Status found = CheckNonceFile(handshake.nonce_file, handshake.from);
  if (found.ok()) return true;
  LogWarning("shared_memory_refused", {{"uses", "tcp"}, {"reason", found.message()}});
  return false;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SocketTransport>> SocketTransport::Create(TransportSink& sink,
                                                                         const Options& options) {
  SocketAddress address = {.shared_memory = options.shared_memory};
  ASSIGN_OR_RETURN(address.nonce, MakeNonce());
  ASSIGN_OR_RETURN(UniqueFd nonce_file, MakeNonceFile(address.nonce));
  address.nonce_file = {.pid = static_cast<uint32_t>(getpid()),
                        .fd = static_cast<uint32_t>(nonce_file.get())};
  ASSIGN_OR_RETURN(address.endpoint, FindInterface(options.interface));
  ASSIGN_OR_RETURN(UniqueFd listener, ListenAt(address.endpoint));
  std::unique_ptr<SocketTransport> transport(
      new SocketTransport(sink, options,
                          {.address = std::move(address),
                           .listener = std::move(listener),
                           .nonce_file = std::move(nonce_file)}));
  RETURN_IF_ERROR(transport->Open());
  return transport;
}

SocketTransport::SocketTransport(TransportSink& sink, const Options& options, Identity identity)
    : sink_(sink),
      interface_(options.interface),
      handshake_limit_(options.handshake_limit),
      own_address_(std::move(identity.address)),
      encoded_address_(own_address_.Encode()),
      listener_(std::move(identity.listener)),
      nonce_file_(std::move(identity.nonce_file)) {}

absl::Status SocketTransport::Open() {
  epoll_.Reset(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_.valid()) return absl::ErrnoToStatus(errno, "epoll_create1");
  ticker_.Reset(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
  if (!ticker_.valid()) return absl::ErrnoToStatus(errno, "timerfd_create");
  RETURN_IF_ERROR(Watch(listener_.get(), const_cast<UniqueFd*>(&listener_)));
  return Watch(ticker_.get(), &ticker_);
}

SocketTransport::~SocketTransport() {
  const absl::Status why = absl::CancelledError("the transport is being destroyed");
  for (const auto& [nonce, remote] : remotes_) {
    for (const auto& [number, connection] : remote->open) {
      if (connection->outgoing != nullptr) connection->outgoing->End(why);
      if (connection->incoming != nullptr) connection->incoming->End(why);
    }
  }
  // The messages that were not told know no stream any more.
  told_.Clear();
}

absl::StatusOr<PeerId> SocketTransport::Connect(absl::string_view address) {
  ASSIGN_OR_RETURN(const SocketAddress to, SocketAddress::Decode(address));
  ASSIGN_OR_RETURN(const std::string bound, InterfaceToBind(interface_, to.endpoint));
  ASSIGN_OR_RETURN(UniqueFd fd, ConnectFrom(own_address_.endpoint, to.endpoint, bound));
  SocketRemote& remote = RemoteOf(to.nonce);
  const bool shared_memory = own_address_.shared_memory && to.shared_memory &&
                             CheckNonceFile(to.nonce_file, to.nonce).ok();
  const SocketHandshake handshake = {.shared_memory = shared_memory ? 1U : 0U,
                                     .to = to.nonce,
                                     .from = own_address_.nonce,
                                     .nonce_file = own_address_.nonce_file,
                                     .number = remote.numbers.Next()};
  auto stream = std::make_unique<OutgoingStream>(
      std::move(fd), OutgoingStream::Reach(to.endpoint.ip == own_address_.endpoint.ip), handshake,
      OutgoingStream::Shared{.regions = regions_, .work_list = work_list_, .told = told_});
  // Events carry a pointer to the base, which is what RunReady makes of it again.
  SocketStream& watched = *stream;
  SocketConnection& connection = OpenConnection(remote, handshake.number);
  const PeerId peer(++peers_made_);
  watched.connection = &connection;
  watched.other_side = to.endpoint.ToString();
  connection.peer = peer;
  connection.outgoing = std::move(stream);
  peers_[peer] = {.connection = &connection, .shared_memory = shared_memory};
  // From here on a failure is a loss like any other, which OnPeerLost tells.
  const absl::Status status = Watch(watched.fd(), &watched);
  if (!status.ok()) EndConnection(connection, status);
  return peer;
}

absl::string_view SocketTransport::link(PeerId peer) const {
  const auto found = peers_.find(peer);
  CHECK(found != peers_.end()) << "peer " << peer << " is not connected";
  return found->second.shared_memory ? "shm" : "tcp";
}

int SocketTransport::useful_pieces_max(PeerId peer) const {
  const auto found = peers_.find(peer);
  const bool shared_memory = found != peers_.end() && found->second.shared_memory;
  return shared_memory ? int{kPiecesMax} : kTcpPiecesMax;
}

void SocketTransport::Reclaim(std::span<const std::byte> memory) {
  const std::optional<uint64_t> region = regions_.Remove(memory);
  if (!region.has_value()) return;
  for (const auto& [nonce, remote] : remotes_) {
    for (const auto& [number, connection] : remote->open) {
      if (connection->outgoing != nullptr) connection->outgoing->Forget(*region);
    }
  }
}

void SocketTransport::Send(PeerId peer, const MessageHeader& header, Pieces payload,
                           Ticket ticket) {
  const auto found = peers_.find(peer);
  if (found == peers_.end() || found->second.connection == nullptr) {
    return told_.AddSent(ticket, absl::UnavailableError("the peer is lost"));
  }
  found->second.connection->outgoing->Send(header, payload, ticket);
}

void SocketTransport::Disconnect(PeerId peer) {
  std::erase_if(lost_, [&](const Loss& loss) { return loss.peer == peer; });
  const auto found = peers_.find(peer);
  if (found == peers_.end()) return;
  SocketConnection* connection = found->second.connection;
  peers_.erase(found);
  if (connection != nullptr) EndConnection(*connection, absl::CancelledError("disconnected"));
}

void SocketTransport::Break(PeerId peer, const absl::Status& why) {
  const auto found = peers_.find(peer);
  if (found == peers_.end() || found->second.connection == nullptr) return;
  EndConnection(*found->second.connection, why);
}

int SocketTransport::Progress() {
  int handled = RunReady();
  handled += told_.TellTo(sink_);
  handled += RunWork();
  handled += told_.TellTo(sink_);
  // Losses after all that came from their peers. Streams that have ended go last, when neither an
  // event of this round nor the work list names them.
  handled += TellLosses();
  BuryEnded();
  if (!unmapped_.empty()) {
    unmapped_.Step();
    ++handled;
  }
  return handled;
}

bool SocketTransport::Arm() {
  return told_.empty() && lost_.empty() && work_list_.empty() && unmapped_.empty();
}

absl::Status SocketTransport::Watch(int fd, void* what) {
  epoll_event event = {.events = EPOLLIN, .data = {.ptr = what}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0) return absl::OkStatus();
  return SocketError("epoll_ctl", errno);
}

void SocketTransport::WatchForWriting(SocketStream& stream) {
  if (stream.ended() || stream.blocked() == stream.watched_for_writing) return;
  // Only while it is blocked: a socket that takes bytes would wake the loop again and again.
  stream.watched_for_writing = stream.blocked();
  epoll_event event = {.events = EPOLLIN | (stream.blocked() ? EPOLLOUT : 0U),
                       .data = {.ptr = &stream}};
  CHECK_EQ(epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, stream.fd(), &event), 0) << "errno " << errno;
}

int SocketTransport::RunReady() {
  std::array<epoll_event, kEventsMax> events;
  const int count = epoll_wait(epoll_.get(), events.data(), kEventsMax, 0);
  CHECK(count >= 0 || errno == EINTR) << "errno " << errno;
  for (int i = 0; i < count; ++i) {
    if (events[i].data.ptr == &listener_) {
      Accept();
      continue;
    }
    if (events[i].data.ptr == &ticker_) {
      Tick();
      continue;
    }
    auto& stream = *static_cast<SocketStream*>(events[i].data.ptr);
    // By an earlier event of this round.
    if (stream.ended()) continue;
    if ((events[i].events & EPOLLOUT) != 0) stream.Unblock();
    if ((events[i].events & ~EPOLLOUT) == 0) continue;
    const absl::Status status = ReadFrom(stream, ShareBytes(static_cast<size_t>(count)));
    if (!status.ok()) Fail(stream, status);
  }
  return std::max(count, 0);
}

int SocketTransport::RunWork() {
  // What streams put on the list meanwhile is for the next call.
  working_.swap(work_list_);
  int handled = 0;
  for (SocketStream* stream : working_) {
    if (stream->ended()) continue;
    ++handled;
    const absl::Status status = stream->Work(ShareBytes(working_.size()));
    if (!status.ok()) Fail(*stream, status);
    WatchForWriting(*stream);
  }
  working_.clear();
  return handled;
}

int SocketTransport::TellLosses() {
  int told = 0;
  // What the sink does meanwhile with a peer that is lost fails before its loss is told.
  while (told_.empty() && !lost_.empty()) {
    const Loss loss = std::move(lost_.front());
    lost_.erase(lost_.begin());
    peers_.erase(loss.peer);
    sink_.OnPeerLost(loss.peer, loss.why);
    ++told;
  }
  return told;
}

void SocketTransport::Accept() {
  while (true) {
    UniqueFd fd = AcceptAt(listener_.get());
    if (!fd.valid()) {
      if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) PauseAccepting();
      return;
    }
    // Taken and closed: left alone it would wake the loop again and again.
    if (greeting_.size() == kGreetingMax) {
      warnings_.TooMany(kGreetingMax);
      continue;
    }
    auto stream = std::make_unique<IncomingStream>(
        std::move(fd),
        IncomingStream::Shared{
            .work_list = work_list_, .told = told_, .pool = pool_, .unmapped = unmapped_});
    stream->other_side = OtherSide(stream->fd());
    if (!Watch(stream->fd(), static_cast<SocketStream*>(stream.get())).ok()) continue;
    greeting_.push_back(std::move(stream));
    SetTicking(true);
  }
}

// Out of descriptors, most likely: waits a while rather than trying over and over.
void SocketTransport::PauseAccepting() {
  LogWarning("socket_accept_failed", {{"errno", errno}});
  epoll_event event = {.events = 0, .data = {.ptr = const_cast<UniqueFd*>(&listener_)}};
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, listener_.get(), &event);
  accepting_ = false;
  SetTicking(true);
}

void SocketTransport::SetTicking(bool ticking) {
  const timespec interval = ticking ? absl::ToTimespec(handshake_limit_) : timespec{};
  itimerspec left = {};
  timerfd_gettime(ticker_.get(), &left);
  // A timer that runs goes on: connections that keep coming must not put the tick off.
  if (ticking && (left.it_value.tv_sec != 0 || left.it_value.tv_nsec != 0)) return;
  const itimerspec timer = {.it_interval = interval, .it_value = interval};
  timerfd_settime(ticker_.get(), 0, &timer, nullptr);
}

void SocketTransport::Tick() {
  uint64_t ticks = 0;
  static_cast<void>(read(ticker_.get(), &ticks, sizeof(ticks)));
  if (!accepting_) {
    accepting_ = true;
    epoll_event event = {.events = EPOLLIN, .data = {.ptr = const_cast<UniqueFd*>(&listener_)}};
    epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, listener_.get(), &event);
  }
  std::vector<SocketStream*> late;
  for (const auto& stream : greeting_) {
    // Late is what the tick before has seen. Apart, since Fail takes streams out of greeting_.
    if (std::exchange(stream->silent_since_tick, true)) late.push_back(stream.get());
  }
  for (SocketStream* stream : late) {
    Fail(*stream, absl::InvalidArgumentError(absl::StrCat("expected a handshake within ",
                                                          absl::FormatDuration(handshake_limit_),
                                                          ", found none")));
  }
  SetTicking(!greeting_.empty());
}

absl::Status SocketTransport::ReadFrom(SocketStream& stream, size_t bytes_max) {
  RETURN_IF_ERROR(stream.Read(bytes_max));
  if (stream.connection != nullptr) return absl::OkStatus();
  auto& incoming = static_cast<IncomingStream&>(stream);
  return incoming.handshake().has_value() ? Greet(incoming) : absl::OkStatus();
}

absl::Status SocketTransport::Greet(IncomingStream& stream) {
  const SocketHandshake& handshake = *stream.handshake();
  RETURN_IF_ERROR(Validate(handshake, own_address_));
  SocketRemote& remote = RemoteOf(handshake.from);
  const auto found = remote.open.find(handshake.number);
  if (found == remote.open.end() && !remote.numbers.MayBegin(handshake.number)) {
    return absl::UnavailableError("this side has ended the connection");
  }
  SocketConnection& connection = OpenConnection(remote, handshake.number);
  if (connection.incoming != nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("handshake: connection ", handshake.number, " was made before"));
  }
  connection.incoming = TakeGreeting(stream);
  stream.connection = &connection;
  return stream.Admit(handshake.shared_memory != 0 && CanMapMemoryOf(handshake));
}

SocketRemote& SocketTransport::RemoteOf(const TransportNonce& nonce) {
  std::unique_ptr<SocketRemote>& remote = remotes_[{nonce.begin(), nonce.end()}];
  if (remote == nullptr) remote = std::make_unique<SocketRemote>();
  return *remote;
}

SocketConnection& SocketTransport::OpenConnection(SocketRemote& remote, uint64_t number) {
  std::unique_ptr<SocketConnection>& connection = remote.open[number];
  if (connection == nullptr) {
    connection = std::make_unique<SocketConnection>();
    connection->remote = &remote;
    connection->number = number;
  }
  return *connection;
}

void SocketTransport::Fail(SocketStream& stream, const absl::Status& failure) {
  if (absl::IsInvalidArgument(failure)) warnings_.Malformed(stream.other_side, failure.message());
  const absl::Status why = absl::UnavailableError(
      absl::StrCat("connection with ", stream.other_side, ": ", failure.message()));
  if (stream.connection == nullptr) return Bury(TakeGreeting(stream), why);
  EndConnection(*stream.connection, why);
}

std::unique_ptr<IncomingStream> SocketTransport::TakeGreeting(const SocketStream& stream) {
  const auto place = std::find_if(greeting_.begin(), greeting_.end(),
                                  [&](const auto& greeting) { return greeting.get() == &stream; });
  std::unique_ptr<IncomingStream> taken = std::move(*place);
  greeting_.erase(place);
  return taken;
}

void SocketTransport::EndConnection(SocketConnection& connection, const absl::Status& why) {
  if (connection.outgoing != nullptr) Bury(std::move(connection.outgoing), why);
  if (connection.incoming != nullptr) Bury(std::move(connection.incoming), why);
  if (!connection.peer.has_value()) connection.remote->numbers.Skip(connection.number);
  // Unless Disconnect has forgotten it.
  if (const auto peer = peers_.find(connection.peer.value_or(PeerId(0))); peer != peers_.end()) {
    peer->second.connection = nullptr;
    lost_.push_back({.peer = peer->first, .why = why});
  }
  connection.remote->open.erase(connection.number);
}

void SocketTransport::Bury(std::unique_ptr<SocketStream> stream, const absl::Status& why) {
  stream->End(why);
  ended_.push_back(std::move(stream));
}

void SocketTransport::BuryEnded() {
  if (ended_.empty()) return;
  std::erase_if(work_list_, [](const SocketStream* stream) { return stream->ended(); });
  ended_.clear();
}

}  // namespace crossmesh
