#pragma once

#include "common/base/byte_count.h"
#include "common/base/unique_fd.h"
#include "worker/memory/device_memory.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

class MemoryCharge;

// A range of memory that tiles lie in: of the host, anonymous and shareable (a memfd, mapped), so
// that its descriptor can be handed to user processes; or lent by an embedding process; or of a
// GPU, for which a range of addresses stands that can be neither read nor written. Immutable but
// for the bytes themselves.
class Arena {
 public:
  enum class Pages : uint8_t { kSmall, kHuge };

  // Zero-filled; no holder of the descriptor can change its size. ResourceExhausted, with
  // the size and errno's text, when address space or huge pages lack.
  static absl::StatusOr<std::shared_ptr<Arena>> Create(absl::string_view name, ByteCount bytes,
                                                       Pages pages = Pages::kSmall);
  // The lender keeps `memory` valid as long as the arena lives. No descriptor.
  static std::shared_ptr<Arena> Borrow(std::span<std::byte> memory);
  // An offset into it is one into `memory`. ResourceExhausted without address space.
  static absl::StatusOr<std::shared_ptr<Arena>> Reserve(absl::string_view name, ByteCount bytes,
                                                        std::shared_ptr<DeviceMemory> memory);

  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::span<std::byte> bytes() const { return bytes_; }
  int fd() const { return fd_.get(); }  // -1 when borrowed or of a GPU
  // Memory of the host that an embedding process has lent.
  bool is_borrowed() const { return mapped_bytes_ == 0; }
  // Null: the bytes are of the host.
  const std::shared_ptr<DeviceMemory>& device_memory() const { return device_memory_; }
  // Why it has no memory: the GPU could not make it.
  absl::Status status() const;
  // Whether ReleasePages gives memory of it back: its own, of the host, in small pages.
  bool can_release() const { return can_release_; }
  // What is written for the first time from here on takes no more memory than its small pages. For
  // what is filled while other memory is given back.
  void UseSmallPages() const;
  // What it takes of a budget; null: nothing. Set by its maker, before others have it.
  void SetCharge(std::shared_ptr<MemoryCharge> charge) { charge_ = std::move(charge); }
  MemoryCharge* charge() const { return charge_.get(); }

 private:
  Arena(std::span<std::byte> bytes, int64_t mapped_bytes, UniqueFd fd,
        std::shared_ptr<DeviceMemory> device_memory = nullptr)
      : bytes_(bytes),
        mapped_bytes_(mapped_bytes),
        fd_(std::move(fd)),
        device_memory_(std::move(device_memory)) {}

  const std::span<std::byte> bytes_;
  const int64_t mapped_bytes_;  // 0 when borrowed
  const UniqueFd fd_;
  const std::shared_ptr<DeviceMemory> device_memory_;  // shared with its maker
  bool can_release_ = false;
  std::shared_ptr<MemoryCharge> charge_;
};

// Gives the whole pages inside `bytes` back to the system. They hold zeros from then on, for every
// process that maps them, and take memory again when they are read or written. The bytes are of an
// arena that can do that. The system's error.
absl::Status ReleasePages(std::span<std::byte> bytes);

// Bytes of an arena that lie in another one: an allocation which a user process has lent.
struct BoundPiece {
  int64_t offset = 0;
  int64_t bytes = 0;
  std::shared_ptr<Arena> allocation;  // stays as long as something is bound to it
  int64_t allocation_offset = 0;

  int64_t end() const { return offset + bytes; }
};

}  // namespace crossmesh
