#include "worker/memory/arena.h"

#include <cerrno>
#include <cstdint>
#include <string>
#include <utility>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace crossmesh {
namespace {

constexpr int64_t kHugePageBytes = int64_t{2} << 20;

absl::Status NoMemory(absl::string_view name, int64_t bytes, absl::string_view what) {
  const absl::Status status = absl::ErrnoToStatus(errno, what);
  return absl::ResourceExhaustedError(
      absl::StrCat("arena ", name, " of ", bytes, " bytes: ", status.message()));
}

}  // namespace

absl::StatusOr<std::shared_ptr<Arena>> Arena::Create(absl::string_view name, ByteCount bytes,
                                                     Pages pages) {
  // An empty range cannot be mapped.
  int64_t mapped = bytes.value() > 0 ? bytes.value() : 1;
  unsigned int flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  if (pages == Pages::kHuge) {
    flags |= MFD_HUGETLB;
    mapped = (mapped + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  }
  // The name is for readers of /proc; the system takes at most 249 bytes.
  UniqueFd fd(memfd_create(std::string(name.substr(0, 200)).c_str(), flags));
  if (!fd.valid()) return NoMemory(name, mapped, "memfd_create");
  if (ftruncate(fd.get(), mapped) != 0) return NoMemory(name, mapped, "ftruncate");
  // A process that gets the descriptor may write, but cannot make our mapping fault.
  if (fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return NoMemory(name, mapped, "fcntl(F_ADD_SEALS)");
  }
  void* memory = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) return NoMemory(name, mapped, "mmap");
  // A hint for systems that give huge pages on request; on others it has no effect.
  if (pages == Pages::kSmall) madvise(memory, mapped, MADV_HUGEPAGE);
  std::shared_ptr<Arena> arena(
      new Arena(std::span(static_cast<std::byte*>(memory), bytes.value()), mapped, std::move(fd)));
  arena->can_release_ = pages == Pages::kSmall;
  return arena;
}

std::shared_ptr<Arena> Arena::Borrow(std::span<std::byte> memory) {
  return std::shared_ptr<Arena>(new Arena(memory, 0, UniqueFd()));
}

absl::StatusOr<std::shared_ptr<Arena>> Arena::Reserve(absl::string_view name, ByteCount bytes,
                                                      std::shared_ptr<DeviceMemory> memory) {
  const int64_t mapped = bytes.value() > 0 ? bytes.value() : 1;
  void* range =
      mmap(nullptr, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) return NoMemory(name, mapped, "mmap");
  return std::shared_ptr<Arena>(new Arena(std::span(static_cast<std::byte*>(range), bytes.value()),
                                          mapped, UniqueFd(), std::move(memory)));
}

absl::Status Arena::status() const {
  return device_memory_ == nullptr ? absl::OkStatus() : device_memory_->is_made().status();
}

void Arena::UseSmallPages() const {
  // A hint that only systems with huge pages know.
  if (can_release_) madvise(bytes_.data(), mapped_bytes_, MADV_NOHUGEPAGE);
}

Arena::~Arena() {
  if (mapped_bytes_ > 0) munmap(bytes_.data(), mapped_bytes_);
}

absl::Status ReleasePages(std::span<std::byte> bytes) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<uintptr_t>(bytes.data());
  const uintptr_t begin = (first + page - 1) / page * page;
  const uintptr_t end = (first + bytes.size()) / page * page;
  if (end <= begin) return absl::OkStatus();
  // A hole in the file behind the mapping, so that all who map it lose the pages.
  if (madvise(bytes.data() + (begin - first), end - begin, MADV_REMOVE) == 0) {
    return absl::OkStatus();
  }
  return absl::ErrnoToStatus(errno, absl::StrCat("giving back ", end - begin, " bytes"));
}

}  // namespace crossmesh
