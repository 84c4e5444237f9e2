#include "worker/gpu/device/registered_memory.h"

#include "common/base/check.h"
#include "common/base/status_macros.h"

#include <algorithm>
#include <cerrno>

#include <absl/memory/memory.h>
#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <sys/mman.h>
#include <sys/stat.h>

namespace crossmesh {
namespace {

absl::Status NoPages(const Gpu& gpu, size_t bytes, const absl::Status& status) {
  if (status.code() != absl::StatusCode::kResourceExhausted) return status;
  return absl::ResourceExhaustedError(
      absl::StrCat(bytes, " bytes of host memory for ", gpu.uuid(), ": ", status.message()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<RegisteredMemory>> RegisteredMemory::Create(Gpu& gpu,
                                                                           ByteCount bytes) {
  CHECK_GE(bytes.value(), 0);
  // An empty range cannot be mapped.
  const auto mapped_bytes = static_cast<size_t>(std::max<int64_t>(bytes.value(), 1));
  void* const pages =
      mmap(nullptr, mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return Take(gpu, pages, bytes.value(), mapped_bytes);
}

absl::StatusOr<std::unique_ptr<RegisteredMemory>> RegisteredMemory::Map(Gpu& gpu, int fd,
                                                                        int64_t offset,
                                                                        ByteCount bytes) {
  CHECK_GE(offset, 0);
  CHECK_GT(bytes.value(), 0);
  struct stat file = {};
  const int64_t found = fstat(fd, &file) == 0 && S_ISREG(file.st_mode) ? file.st_size : 0;
  // Pages past the end would fault.
  if (found < bytes.value() || offset > found - bytes.value()) {
    return absl::InvalidArgumentError(absl::StrCat("descriptor ", fd, ": expected a file with ",
                                                   bytes.value(), " bytes from ", offset,
                                                   " on, found ", found, " bytes"));
  }
  const auto mapped_bytes = static_cast<size_t>(bytes.value());
  void* const pages = mmap(nullptr, mapped_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, offset);
  return Take(gpu, pages, bytes.value(), mapped_bytes);
}

absl::StatusOr<std::unique_ptr<RegisteredMemory>> RegisteredMemory::Take(Gpu& gpu, void* pages,
                                                                         int64_t bytes,
                                                                         size_t mapped_bytes) {
  if (pages == MAP_FAILED) {
    const absl::Status status = absl::ErrnoToStatus(errno, "mmap");
    return NoPages(gpu, mapped_bytes, absl::ResourceExhaustedError(status.message()));
  }
  auto memory = absl::WrapUnique(
      new RegisteredMemory(gpu, std::span(static_cast<std::byte*>(pages), bytes), mapped_bytes));
  RETURN_IF_ERROR(NoPages(gpu, mapped_bytes, memory->Register()));
  return memory;
}

absl::Status RegisteredMemory::Register() {
  const DriverApi& driver = gpu_.driver();
  RETURN_IF_ERROR(gpu_.Check(
      driver.cuMemHostRegister(bytes_.data(), mapped_bytes_, CU_MEMHOSTREGISTER_DEVICEMAP),
      "cuMemHostRegister"));
  is_registered_ = true;
  CUdeviceptr address = 0;
  RETURN_IF_ERROR(gpu_.Check(driver.cuMemHostGetDevicePointer(&address, bytes_.data(), 0),
                             "cuMemHostGetDevicePointer"));
  device_address_ = address;
  return absl::OkStatus();
}

absl::Status RegisteredMemory::CopyToGpu(std::span<const std::byte> from, uint64_t to,
                                         const GpuStream& stream) {
  return gpu_.Check(gpu_.driver().cuMemcpyHtoDAsync(to, from.data(), from.size(), stream.handle()),
                    "cuMemcpyHtoDAsync");
}

absl::Status RegisteredMemory::CopyFromGpu(uint64_t from, std::span<std::byte> to,
                                           const GpuStream& stream) {
  return gpu_.Check(gpu_.driver().cuMemcpyDtoHAsync(to.data(), from, to.size(), stream.handle()),
                    "cuMemcpyDtoHAsync");
}

RegisteredMemory::~RegisteredMemory() {
  if (is_registered_) {
    gpu_.LogFailure(gpu_.driver().cuMemHostUnregister(bytes_.data()), "cuMemHostUnregister");
  }
  munmap(bytes_.data(), mapped_bytes_);
}

}  // namespace crossmesh
