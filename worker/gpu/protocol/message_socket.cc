#include "worker/gpu/protocol/message_socket.h"

#include "common/base/check.h"
#include "common/base/descriptor_datagram.h"
#include "common/base/sealed_file.h"
#include "common/base/status_macros.h"

#include <array>
#include <cerrno>

#include <absl/strings/str_cat.h>
#include <sys/epoll.h>
#include <sys/socket.h>

namespace crossmesh {
namespace {

// The first byte of a datagram: where its message is.
constexpr char kHere = 0;
constexpr char kInFile = 1;
// So that one that sends for ever leaves the loop its other work.
constexpr int kReceivesMax = 64;

}  // namespace

absl::StatusOr<std::pair<UniqueFd, UniqueFd>> MessageSocket::MakePair() {
  int ends[2] = {};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return absl::ErrnoToStatus(errno, "socketpair");
  }
  return std::pair(UniqueFd(ends[0]), UniqueFd(ends[1]));
}

absl::StatusOr<std::unique_ptr<MessageSocket>> MessageSocket::Create(UniqueFd socket,
                                                                     Handlers handlers) {
  UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) return absl::ErrnoToStatus(errno, "epoll_create1");
  epoll_event event = {.events = EPOLLIN, .data = {}};
  if (epoll_ctl(epoll.get(), EPOLL_CTL_ADD, socket.get(), &event) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("watching descriptor ", socket.get()));
  }
  return std::unique_ptr<MessageSocket>(
      new MessageSocket(std::move(socket), std::move(epoll), std::move(handlers)));
}

MessageSocket::MessageSocket(UniqueFd socket, UniqueFd epoll, Handlers handlers)
    : socket_(std::move(socket)), epoll_(std::move(epoll)), handlers_(std::move(handlers)) {}

absl::StatusOr<MessageSocket::Datagram> MessageSocket::Frame(absl::string_view bytes,
                                                             UniqueFd descriptor) {
  if (std::ssize(bytes) > kMessageBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("a message of ", bytes.size(), " bytes, expected at most ", kMessageBytesMax));
  }
  Datagram datagram;
  if (std::ssize(bytes) < kDatagramBytesMax) {
    datagram.bytes = absl::StrCat(absl::string_view(&kHere, 1), bytes);
  } else {
    // The first descriptor, before the message's own: Deliver takes it from the front.
    ASSIGN_OR_RETURN(datagram.descriptors.emplace_back(), MakeSealedFile(bytes));
    datagram.bytes = kInFile;
  }
  if (descriptor.valid()) datagram.descriptors.push_back(std::move(descriptor));
  return datagram;
}

absl::Status MessageSocket::Send(absl::string_view bytes, UniqueFd descriptor) {
  if (!socket_.valid()) return absl::OkStatus();
  if (waiting_.size() >= kWaitingMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat(waiting_.size(), " messages wait to be taken by the other process"));
  }
  ASSIGN_OR_RETURN(Datagram datagram, Frame(bytes, std::move(descriptor)));
  // Nothing overtakes what waits: both ends count on the order of messages.
  if (waiting_.empty() && TrySend(datagram)) return absl::OkStatus();
  waiting_.push_back(std::move(datagram));
  Watch(/*is_writable=*/true);
  return absl::OkStatus();
}

bool MessageSocket::TrySend(const Datagram& datagram) const {
  std::vector<int> descriptors;
  for (const UniqueFd& descriptor : datagram.descriptors) descriptors.push_back(descriptor.get());
  // Other errors mean that the other end is gone, which is seen when receiving.
  return SendDatagram(socket_.get(), datagram.bytes, descriptors, MSG_DONTWAIT) >= 0 ||
         (errno != EAGAIN && errno != EINTR && errno != ENOBUFS && errno != ETOOMANYREFS);
}

void MessageSocket::Flush() {
  if (waiting_.empty() || !socket_.valid()) return;
  while (!waiting_.empty() && TrySend(waiting_.front())) waiting_.pop_front();
  if (waiting_.empty()) Watch(/*is_writable=*/false);
}

void MessageSocket::Watch(bool is_writable) {
  epoll_event event = {.events = is_writable ? EPOLLIN | EPOLLOUT : EPOLLIN, .data = {}};
  CHECK_EQ(epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, socket_.get(), &event), 0) << "errno " << errno;
}

int MessageSocket::Progress() {
  Flush();
  int received = 0;
  while (received < kReceivesMax && socket_.valid() && ReceiveOne()) ++received;
  return received;
}

bool MessageSocket::ReceiveOne() {
  std::array<char, kDatagramBytesMax> buffer;
  ReceivedDatagram received = ReceiveDatagram(socket_.get(), buffer, MSG_DONTWAIT);
  const ssize_t size = received.size;
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (size <= 0) {
    Fail(absl::UnavailableError("the other end of the socket is closed"));
  } else if (received.is_cut) {
    Fail(absl::InvalidArgumentError(absl::StrCat("a datagram: expected at most ", kDatagramBytesMax,
                                                 " bytes and ", kDatagramDescriptorsMax,
                                                 " descriptors, found more")));
  } else {
    Deliver({.bytes = std::string(buffer.data(), size),
             .descriptors = std::move(received.descriptors)});
  }
  return true;
}

void MessageSocket::Deliver(Datagram datagram) {
  std::vector<UniqueFd>& descriptors = datagram.descriptors;
  const char form = datagram.bytes.front();
  const bool in_file = form == kInFile;
  const bool is_framed = in_file ? datagram.bytes.size() == 1 && !descriptors.empty()
                                 : form == kHere && descriptors.size() < kDatagramDescriptorsMax;
  if (!is_framed) {
    return Fail(absl::InvalidArgumentError(
        absl::StrCat("a datagram of form ", static_cast<int>(form), " with ", datagram.bytes.size(),
                     " bytes and ", descriptors.size(),
                     " descriptors: expected a message, or a file with one")));
  }
  if (in_file) {
    absl::StatusOr<std::string> bytes = ReadSealedFile(descriptors.front().get(), kMessageBytesMax);
    if (!bytes.ok()) return Fail(bytes.status());
    datagram.bytes = *std::move(bytes);
    descriptors.erase(descriptors.begin());
  } else {
    datagram.bytes.erase(0, 1);
  }
  handlers_.on_message(std::move(datagram.bytes),
                       descriptors.empty() ? UniqueFd() : std::move(descriptors.front()));
}

void MessageSocket::Fail(const absl::Status& why) {
  Close();
  handlers_.on_closed(why);
}

void MessageSocket::Close() {
  waiting_.clear();
  // The system takes it out of the epoll, unless another process has it as well.
  if (socket_.valid()) epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, socket_.get(), nullptr);
  socket_.Reset();
}

}  // namespace crossmesh
