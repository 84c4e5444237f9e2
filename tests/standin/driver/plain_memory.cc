// Plain memory and its handles for other processes. After the bytes of its file comes a page that
// says whose it is, so that a stale handle and the use of freed memory are found.

#include "tests/standin/driver/memory.h"

#include <cstring>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace crossmesh {
namespace {

constexpr size_t kPageBytes = 4096;
constexpr uint64_t kMagic = 0x4d49'6e69'6474'5358;

// A CUipcMemHandle, as these bytes.
struct PlainHandle {
  uint64_t magic;
  uint64_t owner;
  uint64_t bytes;  // as allocated
  int32_t process;
  int32_t fd;  // of that process
};
static_assert(sizeof(PlainHandle) <= sizeof(CUipcMemHandle));

size_t InPages(size_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

// Maps the file of plain memory somewhere; 0 when the system refuses.
uintptr_t MapPlain(int fd, size_t bytes) {
  void* const memory =
      mmap(nullptr, InPages(bytes) + kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return memory == MAP_FAILED ? 0 : reinterpret_cast<uintptr_t>(memory);
}

void UnmapPlain(uintptr_t begin, size_t bytes) {
  munmap(reinterpret_cast<void*>(begin), InPages(bytes) + kPageBytes);
}

Outcome Stale() {
  return Failure(CUDA_ERROR_INVALID_HANDLE, "stale: the exporter freed the memory or ended");
}

}  // namespace

// The last page of the file.
struct Memory::Owner {
  std::atomic<uint64_t> id;
  std::atomic<uint32_t> freed;
};

Memory::Owner& Memory::OwnerOf(uintptr_t address, size_t bytes) {
  return *reinterpret_cast<Owner*>(address + InPages(bytes));
}

bool Memory::IsFreedByOwner(uintptr_t begin, const Mapping& mapping) {
  return mapping.kind == Kind::kFromOtherProcess && OwnerOf(begin, mapping.bytes).freed != 0;
}

Outcome Memory::Allocate(int device, size_t bytes, CUdeviceptr& address) {
  if (bytes == 0) return Violation(CUDA_ERROR_INVALID_VALUE, "0 bytes");
  std::shared_ptr<Block> block;
  RETURN_IF_FAILED(MakeBlock(device, InPages(bytes), kPageBytes, block));
  const uintptr_t begin = MapPlain(block->fd.get(), bytes);
  if (begin == 0) return Failure(CUDA_ERROR_OUT_OF_MEMORY, "no address space");
  MutexLock lock(mutex_);
  const uint64_t id = (static_cast<uint64_t>(getpid()) << 32) + next_handle_++;
  OwnerOf(begin, bytes).id = id;
  mappings_[begin] = {.bytes = bytes,
                      .block = std::move(block),
                      .kind = Kind::kPlain,
                      .accessible = true,
                      .id = id};
  address = begin;
  return {};
}

Outcome Memory::Free(CUdeviceptr address) {
  std::shared_ptr<Block> block;  // goes outside of the lock
  MutexLock lock(mutex_);
  const auto found = mappings_.find(address);
  if (found == mappings_.end() || found->second.kind != Kind::kPlain) {
    return Violation(CUDA_ERROR_INVALID_VALUE,
                     absl::StrFormat("%#x was not allocated, or was freed", address));
  }
  RETURN_IF_FAILED(CheckUnused(found->second));
  OwnerOf(address, found->second.bytes).freed = 1;
  UnmapPlain(address, found->second.bytes);
  block = std::move(found->second.block);
  mappings_.erase(found);
  return {};
}

Outcome Memory::GetIpcHandle(CUdeviceptr address, CUipcMemHandle& handle) {
  MutexLock lock(mutex_);
  const auto found = FindLocked(address);
  if (found == mappings_.end() || found->second.kind != Kind::kPlain) {
    return Violation(CUDA_ERROR_INVALID_VALUE,
                     absl::StrFormat("%#x is no memory of cuMemAlloc", address));
  }
  const PlainHandle plain = {.magic = kMagic,
                             .owner = found->second.id,
                             .bytes = found->second.bytes,
                             .process = getpid(),
                             .fd = found->second.block->fd.get()};
  handle = {};
  std::memcpy(&handle, &plain, sizeof(plain));
  return {};
}

Outcome Memory::OpenIpcHandle(int device, const CUipcMemHandle& handle, CUdeviceptr& address) {
  PlainHandle plain;
  std::memcpy(&plain, &handle, sizeof(plain));
  if (plain.magic != kMagic) {
    return Violation(CUDA_ERROR_INVALID_VALUE, "these bytes are no handle");
  }
  if (plain.process == getpid()) {
    return Violation(CUDA_ERROR_INVALID_CONTEXT, "the handle is of this very process");
  }
  MutexLock lock(mutex_);
  for (auto& [begin, mapping] : mappings_) {
    if (mapping.kind != Kind::kFromOtherProcess || mapping.id != plain.owner) continue;
    if (IsFreedByOwner(begin, mapping)) return Stale();
    ++mapping.opens;
    address = begin;
    return {};
  }
  auto block = std::make_shared<Block>();
  const std::string path = absl::StrCat("/proc/", plain.process, "/fd/", plain.fd);
  block->fd.Reset(open(path.c_str(), O_RDWR | O_CLOEXEC));
  block->bytes = plain.bytes;
  block->device = device;
  struct stat status = {};
  if (!block->fd.valid() || fstat(block->fd.get(), &status) != 0 ||
      static_cast<size_t>(status.st_size) != InPages(plain.bytes) + kPageBytes) {
    return Stale();
  }
  if (DeviceOf(NameOfFile(block->fd.get())) != device) {
    return Failure(CUDA_ERROR_INVALID_DEVICE, "the handle is of another device than the context");
  }
  const uintptr_t begin = MapPlain(block->fd.get(), plain.bytes);
  if (begin == 0) return Failure(CUDA_ERROR_MAP_FAILED, "no address space");
  const Owner& owner = OwnerOf(begin, plain.bytes);
  if (owner.id != plain.owner || owner.freed != 0) {
    UnmapPlain(begin, plain.bytes);
    return Stale();
  }
  mappings_[begin] = {.bytes = plain.bytes,
                      .block = std::move(block),
                      .kind = Kind::kFromOtherProcess,
                      .accessible = true,
                      .id = plain.owner,
                      .opens = 1};
  address = begin;
  return {};
}

Outcome Memory::CloseIpcHandle(CUdeviceptr address) {
  MutexLock lock(mutex_);
  const auto found = mappings_.find(address);
  if (found == mappings_.end() || found->second.kind != Kind::kFromOtherProcess) {
    return Violation(CUDA_ERROR_INVALID_VALUE,
                     absl::StrFormat("%#x is not what a handle was opened at", address));
  }
  if (--found->second.opens > 0) return {};
  RETURN_IF_FAILED(CheckUnused(found->second));
  UnmapPlain(address, found->second.bytes);
  mappings_.erase(found);  // of a block without an owner here, so nothing is given back
  return {};
}

Outcome Memory::FindExtent(CUdeviceptr address, CUdeviceptr& begin, size_t& bytes) {
  MutexLock lock(mutex_);
  const auto found = FindLocked(address);
  if (found == mappings_.end()) {
    return Violation(CUDA_ERROR_INVALID_VALUE, absl::StrFormat("%#x is no memory", address));
  }
  begin = found->first;
  bytes = found->second.bytes;
  return {};
}

}  // namespace crossmesh
