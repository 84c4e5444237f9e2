// Memory by address range, plain memory, host memory, copies.

#include "common/base/unique_fd.h"
#include "tests/standin/stand_in_fixture.h"

#include <future>

#include <fcntl.h>
#include <sys/mman.h>

namespace crossmesh {
namespace {

constexpr size_t kBytes = 2 << 20;

void Wait(const StandInLaunch* launch) {
  (*static_cast<std::promise<void>**>(launch->arguments[0]))->get_future().wait();
}
constexpr size_t kWaitBytes[] = {sizeof(void*)};

class DriverMemoryTest : public StandInTest {
 protected:
  CUresult Create(CUmemGenericAllocationHandle& handle, bool shareable = true,
                  size_t bytes = kBytes) {
    const CUmemAllocationProp properties = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes =
            shareable ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    return driver().cuMemCreate(&handle, bytes, &properties, 0);
  }

  // Reserves an address and maps the handle there.
  CUdeviceptr Map(CUmemGenericAllocationHandle handle) {
    CUdeviceptr address = 0;
    EXPECT_OK(Check(driver().cuMemAddressReserve(&address, kBytes, 0, 0, 0)));
    EXPECT_OK(Check(driver().cuMemMap(address, kBytes, 0, handle, 0)));
    return address;
  }
  CUresult SetAccess(CUdeviceptr address) {
    const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    return driver().cuMemSetAccess(address, kBytes, &access, 1);
  }
  void Unmap(CUdeviceptr address) {
    EXPECT_OK(Check(driver().cuMemUnmap(address, kBytes)));
    EXPECT_OK(Check(driver().cuMemAddressFree(address, kBytes)));
  }

  // Keeps the stream busy until the promise is kept.
  void Block(std::promise<void>& gate) {
    stand_in_->AddKernel(
        {.name = "wait", .run = Wait, .argument_count = 1, .argument_bytes = kWaitBytes});
    CUfunction wait = nullptr;
    ASSERT_OK(Check(driver().cuModuleLoadData(&module_, "image")));
    ASSERT_OK(Check(driver().cuModuleGetFunction(&wait, module_, "wait")));
    std::promise<void>* address = &gate;
    void* arguments[] = {&address};
    ASSERT_OK(Check(
        driver().cuLaunchKernel(wait, 1, 1, 1, 1, 1, 1, 0, gpu_->stream(), arguments, nullptr)));
  }

  CUmodule module_ = nullptr;
};

TEST_F(DriverMemoryTest, ADescriptorMapsTheSameMemoryAgain) {
  CUmemGenericAllocationHandle handle = 0;
  ASSERT_OK(Check(Create(handle)));
  const CUdeviceptr address = Map(handle);
  ASSERT_OK(Check(SetAccess(address)));
  int fd = -1;
  ASSERT_OK(Check(driver().cuMemExportToShareableHandle(
      &fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0)));
  const UniqueFd owned(fd);
  CUmemGenericAllocationHandle imported = 0;
  ASSERT_OK(Check(driver().cuMemImportFromShareableHandle(
      &imported, reinterpret_cast<void*>(intptr_t{fd}), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)));
  const CUdeviceptr again = Map(imported);
  ASSERT_OK(Check(SetAccess(again)));
  *reinterpret_cast<int*>(address + 100) = 42;
  EXPECT_EQ(*reinterpret_cast<int*>(again + 100), 42);

  // The memory stays as long as something is mapped from it.
  Unmap(address);
  EXPECT_OK(Check(driver().cuMemRelease(handle)));
  EXPECT_EQ(*reinterpret_cast<int*>(again + 100), 42);
  Unmap(again);
  EXPECT_OK(Check(driver().cuMemRelease(imported)));
  EXPECT_VIOLATION(driver().cuMemRelease(handle), "no such handle, or it was released");
}

TEST_F(DriverMemoryTest, OnlyExportedMemoryIsImported) {
  CUmemGenericAllocationHandle handle = 0;
  ASSERT_OK(Check(Create(handle, false)));
  int fd = -1;
  EXPECT_VIOLATION(driver().cuMemExportToShareableHandle(
                       &fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                   "made without a handle type to share");
  EXPECT_OK(Check(driver().cuMemRelease(handle)));
  const UniqueFd other(memfd_create("other", 0));
  EXPECT_VIOLATION(driver().cuMemImportFromShareableHandle(
                       &handle, reinterpret_cast<void*>(intptr_t{other.get()}),
                       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
                   "is no exported memory");
}

TEST_F(DriverMemoryTest, MemoryMustBeMadeAccessible) {
  CUmemGenericAllocationHandle handle = 0;
  ASSERT_OK(Check(Create(handle)));
  const CUdeviceptr address = Map(handle);
  EXPECT_VIOLATION(driver().cuMemsetD8Async(address, 1, 8, gpu_->stream()),
                   "has not been made accessible");
  ASSERT_OK(Check(SetAccess(address)));
  EXPECT_OK(Check(driver().cuMemsetD8Async(address, 1, 8, gpu_->stream())));
  ASSERT_OK(gpu_->Synchronize());
  EXPECT_VIOLATION(driver().cuMemAddressFree(address, kBytes), "memory is still mapped");
  Unmap(address);
  EXPECT_VIOLATION(driver().cuMemsetD8Async(address, 1, 8, gpu_->stream()),
                   "not all device memory");
  EXPECT_OK(Check(driver().cuMemRelease(handle)));
}

TEST_F(DriverMemoryTest, SizesKeepToTheGranularity) {
  CUmemGenericAllocationHandle handle = 0;
  EXPECT_VIOLATION(Create(handle, true, 4096), "no multiple of 2097152");
}

TEST_F(DriverMemoryTest, MemoryStaysMappedWhileQueuedWorkUsesIt) {
  CUmemGenericAllocationHandle handle = 0;
  ASSERT_OK(Check(Create(handle)));
  const CUdeviceptr address = Map(handle);
  ASSERT_OK(Check(SetAccess(address)));
  std::promise<void> gate;
  Block(gate);
  ASSERT_OK(Check(driver().cuMemsetD8Async(address, 1, 8, gpu_->stream())));
  EXPECT_VIOLATION(driver().cuMemUnmap(address, kBytes),
                   "1 queued operations still use the memory");
  gate.set_value();
  ASSERT_OK(gpu_->Synchronize());
  Unmap(address);
  EXPECT_OK(Check(driver().cuMemRelease(handle)));
  EXPECT_OK(Check(driver().cuModuleUnload(module_)));
}

TEST_F(DriverMemoryTest, CopiesStayWithinTheirMemory) {
  CUdeviceptr address = 0;
  ASSERT_OK(Check(driver().cuMemAlloc(&address, 1000)));
  EXPECT_OK(Check(driver().cuMemsetD8Async(address, 1, 1000, gpu_->stream())));
  EXPECT_VIOLATION(driver().cuMemsetD8Async(address, 1, 1001, gpu_->stream()), "the destination: ");
  EXPECT_OK(Check(driver().cuMemFree(address)));
  EXPECT_VIOLATION(driver().cuMemFree(address), "was not allocated, or was freed");
}

TEST_F(DriverMemoryTest, HostMemoryIsRegisteredBeforeItIsCopied) {
  ASSERT_OK_AND_ASSIGN(const std::span<std::byte> memory, gpu_->Allocate(4096));
  const auto address = reinterpret_cast<CUdeviceptr>(memory.data());
  std::vector<char> host(4096, 'a');
  EXPECT_VIOLATION(driver().cuMemcpyHtoDAsync(address, host.data(), 4096, gpu_->stream()),
                   "the source is host memory that is not registered");
  ASSERT_OK(Check(driver().cuMemHostRegister(host.data(), host.size(), 0)));
  EXPECT_VIOLATION(driver().cuMemHostRegister(host.data(), host.size(), 0), "4096 bytes");
  EXPECT_OK(Check(driver().cuMemcpyHtoDAsync(address, host.data(), 2000, gpu_->stream())));
  EXPECT_OK(Check(driver().cuMemcpyDtoDAsync(address + 2048, address, 100, gpu_->stream())));
  EXPECT_OK(Check(driver().cuMemcpyDtoHAsync(host.data(), address + 2048, 200, gpu_->stream())));
  EXPECT_OK(Check(driver().cuMemcpyAsync(address, reinterpret_cast<CUdeviceptr>(host.data()), 10,
                                         gpu_->stream())));
  ASSERT_OK(gpu_->Synchronize());
  EXPECT_EQ(host[99], 'a');
  EXPECT_EQ(host[100], 0);
  CUdeviceptr device_address = 0;
  EXPECT_OK(Check(driver().cuMemHostGetDevicePointer(&device_address, host.data(), 0)));
  EXPECT_OK(Check(driver().cuMemHostUnregister(host.data())));
  EXPECT_VIOLATION(driver().cuMemHostUnregister(host.data()), "no range begins there");
}

TEST_F(DriverMemoryTest, AllocationsAreToldApart) {
  CUdeviceptr first = 0;
  CUdeviceptr second = 0;
  uint64_t ids[2] = {};
  ASSERT_OK(Check(driver().cuMemAlloc(&first, 1000)));
  EXPECT_OK(Check(driver().cuPointerGetAttribute(&ids[0], CU_POINTER_ATTRIBUTE_BUFFER_ID, first)));
  CUdeviceptr begin = 0;
  size_t bytes = 0;
  EXPECT_OK(Check(driver().cuMemGetAddressRange(&begin, &bytes, first + 999)));
  EXPECT_EQ(begin, first);
  EXPECT_EQ(bytes, 1000);
  EXPECT_OK(Check(driver().cuMemFree(first)));
  ASSERT_OK(Check(driver().cuMemAlloc(&second, 1000)));
  EXPECT_OK(Check(driver().cuPointerGetAttribute(&ids[1], CU_POINTER_ATTRIBUTE_BUFFER_ID, second)));
  EXPECT_NE(ids[0], ids[1]);
  EXPECT_OK(Check(driver().cuMemFree(second)));
}

TEST_F(DriverMemoryTest, MemoryIsCountedAndEnds) {
  ASSERT_OK_AND_ASSIGN(const int64_t before, gpu_->FreeBytes());
  CUdeviceptr address = 0;
  ASSERT_OK(Check(driver().cuMemAlloc(&address, 1 << 20)));
  EXPECT_THAT(gpu_->FreeBytes(), IsOkAndHolds(before - (1 << 20)));
  CUdeviceptr more = 0;
  EXPECT_THAT(stand_in_->Check(driver().cuMemAlloc(&more, before), "cuMemAlloc"),
              StatusIs(absl::StatusCode::kResourceExhausted, ::testing::HasSubstr("are taken")));
  EXPECT_OK(Check(driver().cuMemFree(address)));
  EXPECT_THAT(gpu_->FreeBytes(), IsOkAndHolds(before));
}

TEST_F(DriverMemoryTest, TheAllocationThatAFaultNamesFails) {
  ASSERT_OK(stand_in_->SetFaults("out_of_memory_at=2"));
  CUdeviceptr address = 0;
  ASSERT_OK(Check(driver().cuMemAlloc(&address, 1000)));
  CUmemGenericAllocationHandle handle = 0;
  EXPECT_THAT(stand_in_->Check(Create(handle), "cuMemCreate"),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       ::testing::HasSubstr("injected fault out_of_memory_at")));
  EXPECT_OK(Check(Create(handle)));
  EXPECT_OK(Check(driver().cuMemRelease(handle)));
  EXPECT_OK(Check(driver().cuMemFree(address)));
}

}  // namespace
}  // namespace crossmesh
