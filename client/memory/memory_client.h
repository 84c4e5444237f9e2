#pragma once

#include "common/base/unique_fd.h"
#include "common/memory_protocol/memory_protocol.h"
#include "common/memory_protocol/piece_list.h"
#include "common/memory_protocol/storage_sequence.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>
#include <absl/time/time.h>

namespace crossmesh {

// A storage of the worker of this host, mapped into this process. The mapping outlives the worker.
// After a commit of a later version the worker reads and writes other memory, while this keeps the
// old: open it again. Move-only; immutable but for the bytes.
class MappedStorage {
 public:
  MappedStorage(MappedStorage&& other) noexcept;
  MappedStorage& operator=(MappedStorage&& other) noexcept;
  ~MappedStorage();

  std::span<std::byte> bytes() const { return bytes_; }
  // As it was when it was opened: its generation says which version this is.
  const StorageDescription& description() const { return description_; }

 private:
  friend class MemoryClient;
  MappedStorage(std::span<std::byte> bytes, StorageDescription description)
      : bytes_(bytes), description_(std::move(description)) {}

  std::span<std::byte> bytes_;
  StorageDescription description_;
};

// By which this process tells the worker when operations may use a storage, and sees when one has
// committed. Only one process has the user's word at a time. Move-only.
class MappedSequence {
 public:
  MappedSequence(MappedSequence&& other) noexcept : words_(std::exchange(other.words_, nullptr)) {}
  MappedSequence& operator=(MappedSequence&& other) noexcept;
  ~MappedSequence();

  // The memory is used from here on: operations are refused until EndUse, and one that runs already
  // fails. Repeatable.
  void BeginUse();
  // What was written is there for the operations that are requested next. Repeatable.
  void EndUse();
  // Where the worker's memory stands: the last generation of which all bytes are there; 0: the
  // storage is no more.
  uint64_t generation() const { return words_->generation.load(std::memory_order_acquire); }
  // For streams of a GPU, once registered with its driver. After BeginUse a stream that writes
  // user + 1 there does what EndUse does, in its turn; until it has, no other use may begin.
  StorageSequence& words() const { return *words_; }

 private:
  friend class MemoryClient;
  explicit MappedSequence(StorageSequence* words) : words_(words) {}

  StorageSequence* words_;
};

// A storage of the worker of this host in memory of a GPU, for cuMemImportFromShareableHandle. The
// memory outlives the worker; versions are as MappedStorage says. Immutable but for the bytes.
struct GpuStorage {
  StorageDescription description;
  UniqueFd descriptor;
};

// Asks the worker of this host for memory, through its Unix socket. Thread-compatible.
//
// All calls: what the worker refuses, with its code and message;
// Unavailable when there is no worker at the socket, DeadlineExceeded when it does not answer in
// time, Internal when it answers nonsense.
class MemoryClient {
 public:
  struct IpcHandle {
    std::string bytes;
    uint64_t generation = 0;
  };

  static absl::StatusOr<MemoryClient> Connect(const std::string& socket_path,
                                              absl::Duration timeout = absl::Seconds(10));

  // Creates the storage, or opens the one that has this size already.
  absl::StatusOr<MappedStorage> Create(const std::string& storage, const std::string& device,
                                       int64_t bytes);
  absl::StatusOr<MappedStorage> Open(const std::string& storage, const std::string& device);
  // The same of a GPU's memory, which cannot be mapped: FailedPrecondition from one of these for
  // the other kind of memory.
  absl::StatusOr<GpuStorage> CreateOnGpu(const std::string& storage, const std::string& device,
                                         int64_t bytes);
  absl::StatusOr<GpuStorage> OpenOnGpu(const std::string& storage, const std::string& device);
  absl::StatusOr<MappedSequence> OpenSequence(const std::string& storage,
                                              const std::string& device);
  // Lends the worker an allocation of a GPU, as a storage of its own: `descriptor`, which stays the
  // caller's, is what cuMemExportToShareableHandle gave for one of `bytes`, a multiple of the
  // granularity. The memory lives until the storage is deleted, and nothing is bound to it.
  absl::StatusOr<StorageDescription> Lend(const std::string& storage, const std::string& device,
                                          int64_t bytes, int descriptor);
  // The same of memory of cudaMalloc, by the bytes of its cudaIpcMemHandle_t, such as a block of a
  // caching allocator: `bytes` is that of the whole allocation. The loan ends with this client.
  // A loan of another generation than 0 takes the place of the one of that generation, and what is
  // bound to that is lost.
  absl::StatusOr<StorageDescription> LendByHandle(const std::string& storage,
                                                  const std::string& device, int64_t bytes,
                                                  const IpcHandle& handle);
  struct Binding {
    int64_t bytes = 0;  // of the storage
    uint64_t generation = 0;
    PieceList list;
  };
  // Binds a storage to pieces of what was lent: a new one if the generation is 0, else in the place
  // of what it was bound to in that generation. Aborted when it has another one by now.
  absl::StatusOr<StorageDescription> Bind(const std::string& storage, const std::string& device,
                                          const Binding& binding);
  absl::Status Delete(const std::string& storage, const std::string& device);
  // Frees its shadow, if it has one; the next operation that wants one makes it anew.
  absl::Status Trim(const std::string& storage, const std::string& device);
  absl::StatusOr<std::vector<StorageDescription>> List();

 private:
  MemoryClient(UniqueFd socket, std::string socket_path)
      : socket_(std::move(socket)), socket_path_(std::move(socket_path)) {}

  struct Answer {
    MemoryReply reply;
    UniqueFd descriptor;
  };
  // `descriptor` goes along; -1: none.
  absl::StatusOr<Answer> Ask(const MemoryRequest& request, int descriptor = UniqueFd::kNone);
  absl::Status Send(const std::string& datagram, int descriptor) const;
  // What lend and bind are answered: one storage.
  absl::StatusOr<StorageDescription> AskWith(const MemoryRequest& request, int descriptor);
  // What create and open are answered: one storage, with its descriptor.
  absl::StatusOr<GpuStorage> AskForStorage(const MemoryRequest& request);
  absl::StatusOr<MappedStorage> AskAndMap(const MemoryRequest& request);
  absl::StatusOr<GpuStorage> AskForGpuStorage(const MemoryRequest& request);
  // The first `bytes` of what the worker has handed out for it.
  absl::StatusOr<void*> Map(const GpuStorage& answer, int64_t bytes) const;
  absl::Status Failed(absl::string_view what) const;

  UniqueFd socket_;
  std::string socket_path_;
};

// For one storage: connects, opens, maps.
absl::StatusOr<MappedStorage> OpenStorage(const std::string& socket_path,
                                          const std::string& storage, const std::string& device);

}  // namespace crossmesh
