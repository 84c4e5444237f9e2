#include "tests/standin/driver/memory.h"

#include "tests/standin/driver/driver_state.h"
#include "tests/standin/driver/faults.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>
#include <vector>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/string_view.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace crossmesh {
namespace {

constexpr absl::string_view kFileName = "crossmesh-standin-gpu";

std::string Range(uintptr_t begin, size_t bytes) {
  return absl::StrFormat("%#x of %d bytes", begin, bytes);
}

Outcome CheckGranular(size_t bytes) {
  if (bytes > 0 && bytes % Memory::kGranularity == 0) return {};
  return Violation(CUDA_ERROR_INVALID_VALUE,
                   absl::StrCat(bytes, " bytes is no multiple of ", Memory::kGranularity));
}

bool IsOverlapping(uintptr_t a, size_t a_bytes, uintptr_t b, size_t b_bytes) {
  return a < b + b_bytes && b < a + a_bytes;
}

}  // namespace

Memory::Block::~Block() {
  if (owner != nullptr) owner->GiveBack(device, static_cast<int64_t>(bytes));
}

std::string Memory::NameOfFile(int fd) {
  std::array<char, 128> link = {};
  const std::string path = absl::StrCat("/proc/self/fd/", fd);
  const ssize_t bytes = readlink(path.c_str(), link.data(), link.size() - 1);
  return bytes < 0 ? "" : std::string(link.data(), bytes);
}

int Memory::DeviceOf(absl::string_view file_name) {
  const DriverState& state = DriverState::OfProcess();
  file_name = file_name.substr(0, file_name.find(' '));  // " (deleted)" follows
  for (int device = 0; device < state.device_count(); ++device) {
    if (file_name == absl::StrCat("/memfd:", kFileName, state.OriginOf(device))) return device;
  }
  return -1;
}

Outcome Memory::MakeBlock(int device, size_t bytes, size_t extra_bytes,
                          std::shared_ptr<Block>& block) {
  if (Faults::OfProcess().Due("out_of_memory_at")) {
    return Failure(CUDA_ERROR_OUT_OF_MEMORY, "injected fault out_of_memory_at");
  }
  RETURN_IF_FAILED(Take(device, static_cast<int64_t>(bytes)));
  block = std::make_shared<Block>();
  block->bytes = bytes;
  block->device = device;
  block->owner = this;
  const std::string name = absl::StrCat(kFileName, DriverState::OfProcess().OriginOf(device));
  block->fd.Reset(memfd_create(name.c_str(), MFD_CLOEXEC));
  if (!block->fd.valid() ||
      ftruncate(block->fd.get(), static_cast<off_t>(bytes + extra_bytes)) != 0) {
    return Failure(CUDA_ERROR_OUT_OF_MEMORY, absl::StrCat("the system refuses ", bytes, " bytes"));
  }
  return {};
}

Outcome Memory::Create(int device, size_t bytes, bool shareable,
                       CUmemGenericAllocationHandle& handle) {
  RETURN_IF_FAILED(CheckGranular(bytes));
  std::shared_ptr<Block> block;
  RETURN_IF_FAILED(MakeBlock(device, bytes, 0, block));
  block->shareable = shareable;
  MutexLock lock(mutex_);
  handle = next_handle_++;
  handles_[handle] = std::move(block);
  return {};
}

Outcome Memory::Import(int fd, CUmemGenericAllocationHandle& handle) {
  const std::string name = NameOfFile(fd);
  struct stat status = {};
  if (!absl::StartsWith(name, absl::StrCat("/memfd:", kFileName)) || fstat(fd, &status) != 0) {
    return Violation(CUDA_ERROR_INVALID_VALUE,
                     absl::StrCat("descriptor ", fd, " is no exported memory but '", name, "'"));
  }
  auto block = std::make_shared<Block>();
  block->device = DeviceOf(name);
  if (block->device < 0) {
    const int64_t result = Faults::OfProcess().Value("import_result");
    return Failure(result == 0 ? CUDA_ERROR_INVALID_HANDLE : static_cast<CUresult>(result),
                   absl::StrCat("memory '", name, "' of a device that is not here, or was reset"));
  }
  block->fd.Reset(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  block->bytes = status.st_size;
  block->shareable = true;
  MutexLock lock(mutex_);
  handle = next_handle_++;
  handles_[handle] = std::move(block);
  return {};
}

Outcome Memory::Export(CUmemGenericAllocationHandle handle, int& fd) {
  MutexLock lock(mutex_);
  const auto found = handles_.find(handle);
  if (found == handles_.end()) return Violation(CUDA_ERROR_INVALID_VALUE, "no such handle");
  if (!found->second->shareable) {
    return Violation(CUDA_ERROR_INVALID_VALUE,
                     "the memory was made without a handle type to share");
  }
  fd = fcntl(found->second->fd.get(), F_DUPFD_CLOEXEC, 0);
  if (fd < 0) return Failure(CUDA_ERROR_OPERATING_SYSTEM, "no descriptor to be had");
  return {};
}

Outcome Memory::Release(CUmemGenericAllocationHandle handle) {
  std::shared_ptr<Block> block;  // goes outside of the lock
  MutexLock lock(mutex_);
  const auto found = handles_.find(handle);
  if (found == handles_.end()) {
    return Violation(CUDA_ERROR_INVALID_VALUE, "no such handle, or it was released");
  }
  block = std::move(found->second);
  handles_.erase(found);
  return {};
}

Outcome Memory::Reserve(size_t bytes, size_t alignment, CUdeviceptr& address) {
  alignment = std::max(alignment, kGranularity);
  RETURN_IF_FAILED(CheckGranular(bytes));
  void* const memory = mmap(nullptr, bytes + alignment, PROT_NONE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return Failure(CUDA_ERROR_OUT_OF_MEMORY, "no address space");
  const auto begin = reinterpret_cast<uintptr_t>(memory);
  const uintptr_t aligned = (begin + alignment - 1) / alignment * alignment;
  if (aligned > begin) munmap(memory, aligned - begin);
  munmap(reinterpret_cast<void*>(aligned + bytes), begin + alignment - aligned);
  MutexLock lock(mutex_);
  reservations_[aligned] = bytes;
  address = aligned;
  return {};
}

Outcome Memory::FreeReservation(CUdeviceptr address, size_t bytes) {
  MutexLock lock(mutex_);
  const auto found = reservations_.find(address);
  if (found == reservations_.end() || found->second != bytes) {
    return Violation(CUDA_ERROR_INVALID_VALUE,
                     absl::StrCat("no reservation ", Range(address, bytes)));
  }
  const auto mapping = mappings_.lower_bound(address);
  if (mapping != mappings_.end() && mapping->first < address + bytes) {
    return Violation(CUDA_ERROR_INVALID_VALUE, "memory is still mapped in the reservation");
  }
  reservations_.erase(found);
  munmap(reinterpret_cast<void*>(address), bytes);
  return {};
}

Outcome Memory::Map(CUdeviceptr address, size_t bytes, size_t offset,
                    CUmemGenericAllocationHandle handle) {
  MutexLock lock(mutex_);
  const auto block = handles_.find(handle);
  if (block == handles_.end()) {
    return Violation(CUDA_ERROR_INVALID_VALUE, "no such handle, or it was released");
  }
  if (bytes == 0 || bytes % kGranularity != 0 || offset + bytes > block->second->bytes) {
    return Violation(CUDA_ERROR_INVALID_VALUE,
                     absl::StrCat(bytes, " bytes at ", offset, " of a handle of ",
                                  block->second->bytes, " bytes"));
  }
  auto reservation = reservations_.upper_bound(address);
  if (reservation == reservations_.begin() ||
      address + bytes > std::prev(reservation)->first + std::prev(reservation)->second) {
    return Violation(CUDA_ERROR_INVALID_VALUE,
                     absl::StrCat(Range(address, bytes), " is not within a reservation"));
  }
  for (const auto& [begin, mapping] : mappings_) {
    if (IsOverlapping(begin, mapping.bytes, address, bytes)) {
      return Violation(CUDA_ERROR_ALREADY_MAPPED, Range(address, bytes));
    }
  }
  void* const memory =
      mmap(reinterpret_cast<void*>(address), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED,
           block->second->fd.get(), static_cast<off_t>(offset));
  if (memory == MAP_FAILED) return Failure(CUDA_ERROR_MAP_FAILED, Range(address, bytes));
  mappings_[address] = {.bytes = bytes, .block = block->second};
  return {};
}

Outcome Memory::CheckUnused(const Mapping& mapping) {
  if (mapping.users > 0) {
    return Violation(CUDA_ERROR_ILLEGAL_STATE,
                     absl::StrCat(mapping.users, " queued operations still use the memory"));
  }
  if (mapping.registrations > 0) {
    return Violation(CUDA_ERROR_ILLEGAL_STATE,
                     absl::StrCat("the memory is still registered with ", mapping.registrations,
                                  " communicators"));
  }
  return {};
}

Outcome Memory::Unmap(CUdeviceptr address, size_t bytes) {
  std::shared_ptr<Block> block;  // goes outside of the lock
  MutexLock lock(mutex_);
  const auto found = mappings_.find(address);
  if (found == mappings_.end() || found->second.bytes != bytes ||
      found->second.kind != Kind::kByRange) {
    return Violation(CUDA_ERROR_INVALID_VALUE,
                     absl::StrCat(Range(address, bytes), " was not mapped as such"));
  }
  RETURN_IF_FAILED(CheckUnused(found->second));
  if (mmap(reinterpret_cast<void*>(address), bytes, PROT_NONE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED) {
    return Failure(CUDA_ERROR_MAP_FAILED, Range(address, bytes));
  }
  block = std::move(found->second.block);
  mappings_.erase(found);
  return {};
}

Outcome Memory::SetAccess(CUdeviceptr address, size_t bytes,
                          std::span<const CUmemAccessDesc> access) {
  MutexLock lock(mutex_);
  std::vector<Mapping*> mappings;
  uintptr_t end = address;
  for (auto next = mappings_.find(address); next != mappings_.end() && next->first == end; ++next) {
    if (end >= address + bytes) break;
    mappings.push_back(&next->second);
    end += next->second.bytes;
  }
  if (end != address + bytes || access.empty()) {
    return Violation(CUDA_ERROR_INVALID_VALUE,
                     absl::StrCat(Range(address, bytes), " is not what was mapped"));
  }
  const bool writable = access[0].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  mprotect(reinterpret_cast<void*>(address), bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ);
  for (Mapping* mapping : mappings) mapping->accessible = true;
  return {};
}

Outcome Memory::RegisterHost(const void* address, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(address);
  MutexLock lock(mutex_);
  for (const auto& [other, other_bytes] : host_ranges_) {
    if (IsOverlapping(other, other_bytes, begin, bytes)) {
      return Violation(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, Range(begin, bytes));
    }
  }
  host_ranges_[begin] = bytes;
  return {};
}

Outcome Memory::UnregisterHost(const void* address) {
  MutexLock lock(mutex_);
  if (host_ranges_.erase(reinterpret_cast<uintptr_t>(address)) == 1) return {};
  return Violation(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "no range begins there");
}

bool Memory::IsRegisteredHost(const void* address, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(address);
  MutexLock lock(mutex_);
  const auto next = host_ranges_.upper_bound(begin);
  return next != host_ranges_.begin() &&
         begin + bytes <= std::prev(next)->first + std::prev(next)->second;
}

Memory::Mappings::iterator Memory::FindLocked(uintptr_t address) {
  const auto next = mappings_.upper_bound(address);
  if (next == mappings_.begin()) return mappings_.end();
  const auto found = std::prev(next);
  return address < found->first + found->second.bytes ? found : mappings_.end();
}

Outcome Memory::CheckDevice(const void* address, size_t bytes) {
  MutexLock lock(mutex_);
  return CheckDeviceLocked(reinterpret_cast<uintptr_t>(address), bytes);
}

Outcome Memory::CheckDeviceLocked(uintptr_t begin, size_t bytes) {
  for (uintptr_t next = begin; next < begin + std::max<size_t>(bytes, 1);) {
    const auto found = FindLocked(next);
    if (found == mappings_.end()) {
      return Violation(CUDA_ERROR_ILLEGAL_ADDRESS,
                       absl::StrCat(Range(begin, bytes), " is not all device memory"));
    }
    if (!found->second.accessible) {
      return Violation(CUDA_ERROR_ILLEGAL_ADDRESS,
                       absl::StrCat(Range(begin, bytes), " has not been made accessible"));
    }
    if (IsFreedByOwner(found->first, found->second)) {
      return Violation(CUDA_ERROR_ILLEGAL_ADDRESS,
                       absl::StrCat(Range(begin, bytes), " was freed by the exporting process"));
    }
    next = found->first + found->second.bytes;
  }
  return {};
}

void Memory::ForEachMappingLocked(uintptr_t begin, size_t bytes,
                                  absl::FunctionRef<void(Mapping&)> visit) {
  for (uintptr_t next = begin; next < begin + std::max<size_t>(bytes, 1);) {
    const auto found = FindLocked(next);
    if (found == mappings_.end()) return;
    visit(found->second);
    next = found->first + found->second.bytes;
  }
}

StandInMemory Memory::KindOf(const void* address, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(address);
  MutexLock lock(mutex_);
  if (!CheckDeviceLocked(begin, bytes).ok()) return kStandInNoMemory;
  bool shareable = true;
  ForEachMappingLocked(begin, bytes, [&](const Mapping& mapping) {
    shareable = shareable && mapping.block->shareable;
  });
  return shareable ? kStandInShareableMemory : kStandInPlainMemory;
}

void Memory::AddUsers(const void* address, size_t bytes, int users) {
  MutexLock lock(mutex_);
  ForEachMappingLocked(reinterpret_cast<uintptr_t>(address), bytes,
                       [&](Mapping& mapping) { mapping.users += users; });
}

void Memory::AddRegistrations(const void* address, size_t bytes, int registrations) {
  MutexLock lock(mutex_);
  ForEachMappingLocked(reinterpret_cast<uintptr_t>(address), bytes,
                       [&](Mapping& mapping) { mapping.registrations += registrations; });
}

int64_t Memory::TakenBytes(int device) {
  MutexLock lock(mutex_);
  return taken_bytes_[device];
}

Outcome Memory::Take(int device, int64_t bytes) {
  MutexLock lock(mutex_);
  int64_t& taken = taken_bytes_[device];
  if (taken + bytes > device_bytes_) {
    return Failure(CUDA_ERROR_OUT_OF_MEMORY,
                   absl::StrCat(bytes, " bytes, and ", taken, " of ", device_bytes_, " are taken"));
  }
  taken += bytes;
  return {};
}

void Memory::GiveBack(int device, int64_t bytes) {
  MutexLock lock(mutex_);
  taken_bytes_[device] -= bytes;
}

}  // namespace crossmesh
