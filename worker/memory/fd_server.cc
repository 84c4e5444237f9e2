#include "worker/memory/fd_server.h"

#include "common/base/check.h"
#include "common/base/descriptor_datagram.h"
#include "common/base/status_macros.h"
#include "common/mesh/device.h"

#include <array>
#include <cerrno>
#include <ctime>
#include <span>
#include <utility>

#include <absl/strings/str_cat.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

namespace crossmesh {
namespace {

// Before it tries again to accept a client.
constexpr timespec kRetryPause = {.tv_sec = 0, .tv_nsec = 100'000'000};

// Never blocks: a client that does not read its replies is not waited for.
bool SendReply(int client, const std::string& datagram, int descriptor) {
  const std::span<const int> descriptors(&descriptor, descriptor >= 0 ? 1 : 0);
  return SendDatagram(client, datagram, descriptors, MSG_DONTWAIT) == std::ssize(datagram);
}

StorageDescription Describe(const StorageStatus& status) {
  return {.storage = status.key.name,
          .device = ToString(status.key.device),
          .bytes = status.bytes,
          .generation = status.generation,
          .dirty = status.state != StorageState::kReady,
          .gpu = status.gpu,
          .shadow_bytes = status.shadow_bytes};
}

}  // namespace

absl::StatusOr<std::unique_ptr<FdServer>> FdServer::Create(StorageTable& storages,
                                                           Options options) {
  ASSIGN_OR_RETURN(UnixListener listener,
                   UnixListener::Listen(options.socket_path, SOCK_SEQPACKET));
  UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) return absl::ErrnoToStatus(errno, "epoll_create1");
  ASSIGN_OR_RETURN(EventFd stop, EventFd::Create());
  ASSIGN_OR_RETURN(EventFd ready, EventFd::Create());
  UniqueFd retry(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!retry.valid()) return absl::ErrnoToStatus(errno, "timerfd_create");
  return std::unique_ptr<FdServer>(new FdServer(storages, std::move(options),
                                                {.listener = std::move(listener),
                                                 .epoll = std::move(epoll),
                                                 .stop = std::move(stop),
                                                 .ready = std::move(ready),
                                                 .retry = std::move(retry)}));
}

FdServer::FdServer(StorageTable& storages, Options options, Descriptors descriptors)
    : storages_(storages),
      options_(std::move(options)),
      user_memory_(storages, options_.user_memory),
      listener_(std::move(descriptors.listener)),
      epoll_(std::move(descriptors.epoll)),
      stop_(std::move(descriptors.stop)),
      ready_(std::make_shared<Ready>(std::move(descriptors.ready))),
      retry_(std::move(descriptors.retry)) {
  Watch(listener_.fd());
  Watch(stop_.fd());
  Watch(ready_->event.fd());
  Watch(retry_.get());
  thread_ = Thread("fd-server", [this] { Run(); });
}

void FdServer::Stop() {
  if (!thread_.joinable()) return;
  stop_.Signal();
  thread_.Join();
  listener_.Close();
}

void FdServer::Watch(int fd) {
  epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
  CHECK_EQ(epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event), 0) << "errno " << errno;
}

void FdServer::Ignore(int fd) {
  CHECK_EQ(epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr), 0) << "errno " << errno;
}

void FdServer::Run() {
  while (true) {
    epoll_event event;
    if (epoll_wait(epoll_.get(), &event, 1, -1) != 1) continue;
    const int fd = event.data.fd;
    if (fd == stop_.fd()) break;
    if (fd == listener_.fd()) {
      Accept();
    } else if (fd == ready_->event.fd()) {
      SendReady();
    } else if (fd == retry_.get()) {
      SetRetry({});
      GoOnAccepting();
    } else if (!Serve(fd)) {
      Drop(fd);
    }
  }
  clients_.clear();
}

void FdServer::Drop(int client) {
  user_memory_.EndLoansOf(client);
  clients_.erase(client);
  GoOnAccepting();
}

void FdServer::Accept() {
  UniqueFd client(accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!client.valid()) {
    // Mostly no descriptor is left. The client still waits, so the listener would wake the thread
    // again at once.
    PauseAccepting();
    SetRetry(kRetryPause);
    return;
  }
  const int fd = client.get();
  Watch(fd);
  clients_.emplace(fd, std::move(client));
  // Looks for more when a client has gone.
  if (std::ssize(clients_) >= options_.clients_max) PauseAccepting();
}

void FdServer::SetRetry(timespec after) {
  const itimerspec timer = {.it_interval = {}, .it_value = after};
  CHECK_EQ(timerfd_settime(retry_.get(), 0, &timer, nullptr), 0) << "errno " << errno;
}

void FdServer::PauseAccepting() {
  if (std::exchange(accepting_, false)) Ignore(listener_.fd());
}

void FdServer::GoOnAccepting() {
  if (std::ssize(clients_) >= options_.clients_max || std::exchange(accepting_, true)) return;
  Watch(listener_.fd());
}

bool FdServer::Serve(int client) {
  std::array<char, 4096> datagram;
  // With the size of what the room has cut.
  ReceivedDatagram received = ReceiveDatagram(client, datagram, MSG_DONTWAIT | MSG_TRUNC);
  const ssize_t size = received.size;
  if (size < 0) return errno == EAGAIN || errno == EINTR;
  if (size == 0) return false;
  Answer answer;
  if (size > std::ssize(datagram)) {
    answer.reply.status = absl::InvalidArgumentError(
        absl::StrCat("a request of ", size, " bytes: expected at most ", datagram.size()));
  } else if (auto request = DecodeMemoryRequest(absl::string_view(datagram.data(), size));
             request.ok()) {
    answer = AnswerTo(
        {.memory = *std::move(request), .descriptor = received.TakeDescriptor(), .client = client});
  } else {
    answer.reply.status = request.status();
  }
  if (answer.arena != nullptr && answer.arena->device_memory() != nullptr) {
    AnswerWhenMade(client, std::move(answer));
    return true;
  }
  return SendReply(client, Encode(answer.reply), answer.arena ? answer.arena->fd() : -1);
}

void FdServer::AnswerWhenMade(int client, Answer answer) {
  // Not watched meanwhile: so replies keep their order, and the client cannot be dropped and its
  // number given to another one.
  Ignore(client);
  DeviceMemory& memory = *answer.arena->device_memory();
  memory.WhenMade(
      [ready = ready_, client, answer = std::move(answer)](const DeviceMemory::Made& made) mutable {
        const int descriptor = made.ok() ? made->get() : -1;
        if (!made.ok()) answer.reply = {.status = made.status()};
        {
          MutexLock lock(ready->mutex);
          ready->replies.push_back(
              {.client = client, .answer = std::move(answer), .descriptor = descriptor});
        }
        ready->event.Signal();
      });
}

void FdServer::SendReady() {
  ready_->event.Drain();
  std::vector<Ready::Reply> replies;
  {
    MutexLock lock(ready_->mutex);
    replies = std::exchange(ready_->replies, {});
  }
  for (const Ready::Reply& reply : replies) {
    Watch(reply.client);
    if (!SendReply(reply.client, Encode(reply.answer.reply), reply.descriptor)) Drop(reply.client);
  }
}

FdServer::Answer FdServer::AnswerTo(Request request) {
  absl::StatusOr<Answer> answer = Execute(std::move(request));
  if (answer.ok()) return *std::move(answer);
  return {.reply = {.status = answer.status()}};
}

absl::StatusOr<FdServer::Answer> FdServer::Execute(Request request) {
  Answer answer;
  const MemoryRequest::Op op = request.memory.op;
  if (op == MemoryRequest::Op::kList) {
    for (const StorageStatus& status : storages_.List()) {
      answer.reply.storages.push_back(Describe(status));
    }
    return answer;
  }
  ASSIGN_OR_RETURN(DeviceId device, ParseDevice(request.memory.device));
  const StorageKey key{.name = request.memory.storage, .device = std::move(device)};
  if (op == MemoryRequest::Op::kDelete) {
    RETURN_IF_ERROR(storages_.Delete(key));
    return answer;
  }
  if (op == MemoryRequest::Op::kTrim) {
    RETURN_IF_ERROR(storages_.Trim(key));
    return answer;
  }
  ASSIGN_OR_RETURN(StorageTable::Opened opened, OpenFor(std::move(request), key));
  const DeviceMemory* const memory = opened.arena->device_memory().get();
  const bool is_of_user = memory != nullptr && !memory->has_descriptor();
  if ((opened.arena->fd() < 0 && memory == nullptr) ||
      (is_of_user && (op == MemoryRequest::Op::kOpen || op == MemoryRequest::Op::kCreate))) {
    return absl::FailedPreconditionError(absl::StrCat(
        "storage \"", key.name, "\" of device ", ToString(key.device),
        is_of_user ? " is memory of a user process" : " lies in memory of the embedding process",
        ", which has no descriptor"));
  }
  answer.reply.storages.push_back(Describe(opened.status));
  answer.arena = std::move(opened.arena);
  return answer;
}

absl::StatusOr<StorageTable::Opened> FdServer::OpenFor(Request request, const StorageKey& key) {
  const MemoryRequest& memory = request.memory;
  if (memory.op == MemoryRequest::Op::kOpen) return storages_.Open(key);
  if (memory.op == MemoryRequest::Op::kSequence) return storages_.OpenSequence(key);
  if (memory.bytes > options_.storage_bytes_max) {
    return absl::ResourceExhaustedError(absl::StrCat("storage \"", key.name, "\" of ", memory.bytes,
                                                     " bytes: expected at most ",
                                                     options_.storage_bytes_max));
  }
  if (memory.op == MemoryRequest::Op::kCreate) return storages_.Create(key, memory.bytes);
  if (memory.op == MemoryRequest::Op::kLend) {
    return user_memory_.Lend(key, {.bytes = ByteCount(memory.bytes),
                                   .memory = {.descriptor = std::move(request.descriptor),
                                              .ipc_handle = memory.ipc_handle},
                                   .generation = memory.generation,
                                   .lender = request.client});
  }
  return user_memory_.Bind(key, {.bytes = ByteCount(memory.bytes),
                                 .generation = memory.generation,
                                 .list = std::move(request.descriptor)});
}

}  // namespace crossmesh
