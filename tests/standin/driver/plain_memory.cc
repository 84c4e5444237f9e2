// Plain memory and its handles for other processes. Behind the bytes of its file comes a page that
// says whose it is, so that a stale handle and the use of freed memory are found.

#include "tests/standin/driver/memory.h"

#include <cstring>

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
  CUuuid uuid;
};
static_assert(sizeof(PlainHandle) <= sizeof(CUipcMemHandle));

size_t InPages(size_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

}  // namespace

// The last page of the file.
struct Memory::Owner {
  std::atomic<uint64_t> id;  // unique on this machine
  std::atomic<uint32_t> freed;
};

Memory::Owner& Memory::OwnerOf(uintptr_t address, size_t bytes) {
  return *reinterpret_cast<Owner*>(address + InPages(bytes));
}

uintptr_t Memory::MapPlain(int fd, size_t bytes) {
  void* const memory =
      mmap(nullptr, InPages(bytes) + kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return memory == MAP_FAILED ? 0 : reinterpret_cast<uintptr_t>(memory);
}

Outcome Memory::Allocate(int device, size_t bytes, CUdeviceptr& address) {
  if (bytes == 0) return Violation(CUDA_ERROR_INVALID_VALUE, "0 bytes");
  std::shared_ptr<Block> block;
  if (Outcome outcome = MakeBlock(device, InPages(bytes), kPageBytes, block); !outcome.ok()) {
    return outcome;
  }
  const uintptr_t begin = MapPlain(block->fd.get(), bytes);
  if (begin == 0) return Failure(CUDA_ERROR_OUT_OF_MEMORY, "no address space");
  MutexLock lock(mutex_);
  const uint64_t id = next_id_++;
  OwnerOf(begin, bytes).id = (static_cast<uint64_t>(getpid()) << 32) + id;
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
  if (Outcome outcome = CheckUnused(found->second); !outcome.ok()) return outcome;
  OwnerOf(address, found->second.bytes).freed = 1;
  munmap(reinterpret_cast<void*>(address), InPages(found->second.bytes) + kPageBytes);
  block = std::move(found->second.block);
  mappings_.erase(found);
  return {};
}

Outcome Memory::GetIpcHandle(CUdeviceptr address, const CUuuid& uuid, CUipcMemHandle& handle) {
  MutexLock lock(mutex_);
  const auto found = mappings_.find(address);
  if (found == mappings_.end() || found->second.kind != Kind::kPlain) {
    return Violation(CUDA_ERROR_INVALID_VALUE,
                     absl::StrFormat("%#x is not the begin of an allocation", address));
  }
  const Mapping& mapping = found->second;
  const PlainHandle plain = {.magic = kMagic,
                             .owner = OwnerOf(address, mapping.bytes).id,
                             .bytes = mapping.bytes,
                             .process = getpid(),
                             .fd = mapping.block->fd.get(),
                             .uuid = uuid};
  handle = {};
  std::memcpy(&handle, &plain, sizeof(plain));
  return {};
}

Outcome Memory::OpenIpcHandle(int device, const CUuuid& uuid, const CUipcMemHandle& handle,
                              CUdeviceptr& address) {
  PlainHandle plain;
  std::memcpy(&plain, &handle, sizeof(plain));
  if (plain.magic != kMagic)
    return Violation(CUDA_ERROR_INVALID_VALUE, "these bytes are no handle");
  if (plain.process == getpid()) {
    return Violation(CUDA_ERROR_INVALID_CONTEXT, "the handle is of this very process");
  }
  if (std::memcmp(&plain.uuid, &uuid, sizeof(uuid)) != 0) {
    return Violation(CUDA_ERROR_INVALID_DEVICE, "the handle is of another device than the context");
  }
  MutexLock lock(mutex_);
  for (auto& [begin, mapping] : mappings_) {
    if (mapping.kind == Kind::kFromOtherProcess && mapping.id == plain.owner) {
      ++mapping.opens;
      address = begin;
      return {};
    }
  }
  auto block = std::make_shared<Block>();
  const std::string path = absl::StrCat("/proc/", plain.process, "/fd/", plain.fd);
  block->fd.Reset(open(path.c_str(), O_RDWR | O_CLOEXEC));
  block->bytes = plain.bytes;
  block->device = device;
  struct stat status = {};
  if (!block->fd.valid() || fstat(block->fd.get(), &status) != 0 ||
      static_cast<size_t>(status.st_size) != InPages(plain.bytes) + kPageBytes) {
    return Violation(CUDA_ERROR_INVALID_HANDLE, "stale: the exporter freed the memory or ended");
  }
  const uintptr_t begin = MapPlain(block->fd.get(), plain.bytes);
  if (begin == 0) return Failure(CUDA_ERROR_MAP_FAILED, "no address space");
  const Owner& owner = OwnerOf(begin, plain.bytes);
  if (owner.id != plain.owner || owner.freed != 0) {
    munmap(reinterpret_cast<void*>(begin), InPages(plain.bytes) + kPageBytes);
    return Violation(CUDA_ERROR_INVALID_HANDLE, "stale: the exporter freed the memory");
  }
  mappings_[begin] = {.bytes = plain.bytes,
                      .block = std::move(block),
                      .kind = Kind::kFromOtherProcess,
                      .accessible = true,
                      .opens = 1,
                      .id = plain.owner};
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
  if (found->second.opens > 1) {
    --found->second.opens;
    return {};
  }
  if (Outcome outcome = CheckUnused(found->second); !outcome.ok()) return outcome;
  munmap(reinterpret_cast<void*>(address), InPages(found->second.bytes) + kPageBytes);
  mappings_.erase(found);  // of a block without an owner here, so nothing is given back
  return {};
}

bool Memory::IsFreedByOwner(uintptr_t begin, const Mapping& mapping) {
  return mapping.kind == Kind::kFromOtherProcess && OwnerOf(begin, mapping.bytes).freed != 0;
}

}  // namespace crossmesh
