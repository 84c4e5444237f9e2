#include "client/memory/memory_client.h"

#include "common/base/descriptor_datagram.h"
#include "common/base/sealed_file.h"
#include "common/base/status_macros.h"

#include <cerrno>
#include <cstring>
#include <span>

#include <absl/strings/str_cat.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>

namespace crossmesh {

MappedStorage::MappedStorage(MappedStorage&& other) noexcept
    : bytes_(std::exchange(other.bytes_, {})), description_(std::move(other.description_)) {}

MappedStorage& MappedStorage::operator=(MappedStorage&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  std::swap(description_, other.description_);
  return *this;
}

MappedStorage::~MappedStorage() {
  if (bytes_.data() != nullptr) munmap(bytes_.data(), bytes_.size());
}

MappedSequence& MappedSequence::operator=(MappedSequence&& other) noexcept {
  std::swap(words_, other.words_);
  return *this;
}

MappedSequence::~MappedSequence() {
  if (words_ != nullptr) munmap(words_, kSequencePageBytes);
}

void MappedSequence::BeginUse() { words_->user.fetch_or(1); }

void MappedSequence::EndUse() {
  const uint64_t user = words_->user.load();
  if (user % 2 != 0) words_->user.store(user + 1, std::memory_order_release);
}

absl::StatusOr<MemoryClient> MemoryClient::Connect(const std::string& socket_path,
                                                   absl::Duration timeout) {
  sockaddr_un address{.sun_family = AF_UNIX};
  if (socket_path.empty() || socket_path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(
        absl::StrCat("socket path \"", socket_path, "\": expected 1 to ",
                     sizeof(address.sun_path) - 1, " bytes, found ", socket_path.size()));
  }
  std::memcpy(address.sun_path, socket_path.data(), socket_path.size());
  MemoryClient client(UniqueFd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)), socket_path);
  if (!client.socket_.valid()) return client.Failed("socket");
  const timeval wait = absl::ToTimeval(timeout);
  // A worker that hangs must not hang its users.
  for (const int option : {SO_RCVTIMEO, SO_SNDTIMEO}) {
    if (setsockopt(client.socket_.get(), SOL_SOCKET, option, &wait, sizeof(wait)) != 0) {
      return client.Failed("setsockopt");
    }
  }
  if (connect(client.socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) !=
      0) {
    return client.Failed("connect");
  }
  return client;
}

absl::StatusOr<MappedStorage> MemoryClient::Create(const std::string& storage,
                                                   const std::string& device, int64_t bytes) {
  return AskAndMap(
      {.op = MemoryRequest::Op::kCreate, .storage = storage, .device = device, .bytes = bytes});
}

absl::StatusOr<MappedStorage> MemoryClient::Open(const std::string& storage,
                                                 const std::string& device) {
  return AskAndMap({.op = MemoryRequest::Op::kOpen, .storage = storage, .device = device});
}

absl::StatusOr<GpuStorage> MemoryClient::CreateOnGpu(const std::string& storage,
                                                     const std::string& device, int64_t bytes) {
  return AskForGpuStorage(
      {.op = MemoryRequest::Op::kCreate, .storage = storage, .device = device, .bytes = bytes});
}

absl::StatusOr<GpuStorage> MemoryClient::OpenOnGpu(const std::string& storage,
                                                   const std::string& device) {
  return AskForGpuStorage({.op = MemoryRequest::Op::kOpen, .storage = storage, .device = device});
}

absl::StatusOr<MappedSequence> MemoryClient::OpenSequence(const std::string& storage,
                                                          const std::string& device) {
  ASSIGN_OR_RETURN(
      const GpuStorage answer,
      AskForStorage({.op = MemoryRequest::Op::kSequence, .storage = storage, .device = device}));
  ASSIGN_OR_RETURN(void* const page, Map(answer, kSequencePageBytes));
  return MappedSequence(static_cast<StorageSequence*>(page));
}

absl::StatusOr<StorageDescription> MemoryClient::Lend(const std::string& storage,
                                                      const std::string& device, int64_t bytes,
                                                      int descriptor) {
  return AskWith(
      {.op = MemoryRequest::Op::kLend, .storage = storage, .device = device, .bytes = bytes},
      descriptor);
}

absl::StatusOr<StorageDescription> MemoryClient::LendByHandle(const std::string& storage,
                                                              const std::string& device,
                                                              int64_t bytes,
                                                              const IpcHandle& handle) {
  return AskWith({.op = MemoryRequest::Op::kLend,
                  .storage = storage,
                  .device = device,
                  .bytes = bytes,
                  .generation = handle.generation,
                  .ipc_handle = handle.bytes},
                 UniqueFd::kNone);
}

absl::StatusOr<StorageDescription> MemoryClient::Bind(const std::string& storage,
                                                      const std::string& device,
                                                      const Binding& binding) {
  ASSIGN_OR_RETURN(const UniqueFd list, MakeSealedFile(Encode(binding.list)));
  return AskWith({.op = MemoryRequest::Op::kBind,
                  .storage = storage,
                  .device = device,
                  .bytes = binding.bytes,
                  .generation = binding.generation},
                 list.get());
}

absl::StatusOr<StorageDescription> MemoryClient::AskWith(const MemoryRequest& request,
                                                         int descriptor) {
  ASSIGN_OR_RETURN(Answer answer, Ask(request, descriptor));
  if (answer.reply.storages.size() == 1) return std::move(answer.reply.storages[0]);
  return absl::InternalError(absl::StrCat(
      "worker at ", socket_path_, ": expected one storage, found ", answer.reply.storages.size()));
}

absl::Status MemoryClient::Delete(const std::string& storage, const std::string& device) {
  return Ask({.op = MemoryRequest::Op::kDelete, .storage = storage, .device = device}).status();
}

absl::Status MemoryClient::Trim(const std::string& storage, const std::string& device) {
  return Ask({.op = MemoryRequest::Op::kTrim, .storage = storage, .device = device}).status();
}

absl::StatusOr<std::vector<StorageDescription>> MemoryClient::List() {
  ASSIGN_OR_RETURN(Answer answer, Ask({.op = MemoryRequest::Op::kList}));
  if (!answer.reply.complete) {
    return absl::ResourceExhaustedError(
        absl::StrCat("worker at ", socket_path_, " has more storages than the ",
                     answer.reply.storages.size(), " that one reply holds"));
  }
  return std::move(answer.reply.storages);
}

absl::Status MemoryClient::Send(const std::string& datagram, int descriptor) const {
  const std::span<const int> descriptors(&descriptor, descriptor >= 0 ? 1 : 0);
  return SendDatagram(socket_.get(), datagram, descriptors) < 0 ? Failed("sendmsg")
                                                                : absl::OkStatus();
}

absl::StatusOr<MemoryClient::Answer> MemoryClient::Ask(const MemoryRequest& request,
                                                       int descriptor) {
  RETURN_IF_ERROR(Send(Encode(request), descriptor));
  std::string reply(kMemoryDatagramBytesMax, '\0');
  ReceivedDatagram received;
  do {  // a process that was stopped goes on with EINTR here, since the socket has a timeout
    received = ReceiveDatagram(socket_.get(), reply);
  } while (received.size < 0 && errno == EINTR);
  if (received.size < 0) return Failed("recvmsg");
  if (received.size == 0) {
    return absl::UnavailableError(absl::StrCat("worker at ", socket_path_, " has hung up"));
  }
  Answer answer{.descriptor = received.TakeDescriptor()};
  absl::StatusOr<MemoryReply> decoded =
      DecodeMemoryReply(absl::string_view(reply.data(), received.size));
  if (!decoded.ok()) {
    return absl::InternalError(
        absl::StrCat("worker at ", socket_path_, ": ", decoded.status().message()));
  }
  answer.reply = *std::move(decoded);
  RETURN_IF_ERROR(answer.reply.status);
  return answer;
}

absl::StatusOr<GpuStorage> MemoryClient::AskForStorage(const MemoryRequest& request) {
  ASSIGN_OR_RETURN(Answer answer, Ask(request));
  if (answer.reply.storages.size() != 1 || !answer.descriptor.valid()) {
    return absl::InternalError(absl::StrCat("worker at ", socket_path_,
                                            ": expected one storage with a descriptor, found ",
                                            answer.reply.storages.size()));
  }
  return GpuStorage{.description = std::move(answer.reply.storages[0]),
                    .descriptor = std::move(answer.descriptor)};
}

absl::StatusOr<GpuStorage> MemoryClient::AskForGpuStorage(const MemoryRequest& request) {
  ASSIGN_OR_RETURN(GpuStorage answer, AskForStorage(request));
  if (!answer.description.gpu.empty()) return answer;
  return absl::FailedPreconditionError(
      absl::StrCat("storage \"", request.storage, "\" of device ", request.device,
                   ": expected memory of a GPU, found the host's"));
}

absl::StatusOr<MappedStorage> MemoryClient::AskAndMap(const MemoryRequest& request) {
  ASSIGN_OR_RETURN(GpuStorage answer, AskForStorage(request));
  StorageDescription& storage = answer.description;
  if (!storage.gpu.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("storage \"", storage.storage, "\" of device ", storage.device,
                     ": expected host memory, which can be mapped, found memory of ", storage.gpu));
  }
  if (storage.bytes == 0) return MappedStorage({}, std::move(storage));
  ASSIGN_OR_RETURN(void* const memory, Map(answer, storage.bytes));
  const std::span bytes(static_cast<std::byte*>(memory), storage.bytes);
  return MappedStorage(bytes, std::move(storage));
}

absl::StatusOr<void*> MemoryClient::Map(const GpuStorage& answer, int64_t bytes) const {
  // Never maps more than there is: touching it would end this process.
  struct stat file;
  if (fstat(answer.descriptor.get(), &file) != 0) return Failed("fstat");
  if (file.st_size < bytes) {
    return absl::InternalError(absl::StrCat("storage \"", answer.description.storage,
                                            "\": expected ", bytes, " bytes, found a file of ",
                                            file.st_size));
  }
  void* memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, answer.descriptor.get(), 0);
  if (memory == MAP_FAILED) return Failed("mmap");
  return memory;
}

absl::Status MemoryClient::Failed(absl::string_view what) const {
  const bool late = errno == EAGAIN || errno == EWOULDBLOCK;
  const std::string text =
      absl::StrCat("worker at ", socket_path_, ": ", absl::ErrnoToStatus(errno, what).message());
  return late ? absl::DeadlineExceededError(text) : absl::UnavailableError(text);
}

absl::StatusOr<MappedStorage> OpenStorage(const std::string& socket_path,
                                          const std::string& storage, const std::string& device) {
  ASSIGN_OR_RETURN(MemoryClient client, MemoryClient::Connect(socket_path));
  return client.Open(storage, device);
}

}  // namespace crossmesh
