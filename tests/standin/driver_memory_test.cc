// Memory by address range, host memory, copies.

#include "tests/standin/stand_in_fixture.h"

#include <future>

namespace crossmesh {
namespace {

void Wait(const StandInLaunch* launch) {
  (*static_cast<std::promise<void>**>(launch->arguments[0]))->get_future().wait();
}
constexpr size_t kWaitBytes[] = {sizeof(void*)};

class DriverMemoryTest : public StandInTest {
 protected:
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

TEST_F(DriverMemoryTest, MemoryIsExportedOnlyIfMadeForIt) {
  const MappedMemory memory = MapMemory(/*is_shareable=*/false);
  int fd = -1;
  EXPECT_VIOLATION(driver().cuMemExportToShareableHandle(
                       &fd, memory.handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                   "made without a handle type to share");
  Unmap(memory);
  EXPECT_VIOLATION(driver().cuMemRelease(memory.handle), "no such handle, or it was released");
}

TEST_F(DriverMemoryTest, MemoryMustBeMadeAccessibleAndIsUsedWithinItsBounds) {
  const MappedMemory memory = MapMemory();
  const auto fill = [&](size_t bytes) {
    return driver().cuMemsetD8Async(memory.address, 1, bytes, gpu_->stream());
  };
  EXPECT_VIOLATION(fill(8), "has not been made accessible");
  ASSERT_OK(Check(SetAccess(memory.address)));
  EXPECT_OK(Check(fill(kMappedBytes)));
  EXPECT_VIOLATION(fill(kMappedBytes + 1), "the destination: ");
  ASSERT_OK(gpu_->Synchronize());
  EXPECT_VIOLATION(driver().cuMemAddressFree(memory.address, kMappedBytes),
                   "memory is still mapped");
  Unmap(memory);
  EXPECT_VIOLATION(fill(8), "not all device memory");
}

TEST_F(DriverMemoryTest, SizesKeepToTheGranularity) {
  CUmemGenericAllocationHandle handle = 0;
  EXPECT_VIOLATION(CreateMemory(handle, 4096), "no multiple of 2097152");
}

TEST_F(DriverMemoryTest, MemoryStaysMappedWhileQueuedWorkUsesIt) {
  const MappedMemory memory = MapMemory();
  ASSERT_OK(Check(SetAccess(memory.address)));
  std::promise<void> gate;
  Block(gate);
  ASSERT_OK(Check(driver().cuMemsetD8Async(memory.address, 1, 8, gpu_->stream())));
  EXPECT_VIOLATION(driver().cuMemUnmap(memory.address, kMappedBytes),
                   "1 queued operations still use the memory");
  gate.set_value();
  ASSERT_OK(gpu_->Synchronize());
  Unmap(memory);
  EXPECT_OK(Check(driver().cuModuleUnload(module_)));
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
  ASSERT_OK(gpu_->Synchronize());
  EXPECT_EQ(host[99], 'a');
  EXPECT_EQ(host[100], 0);
  CUdeviceptr device_address = 0;
  EXPECT_OK(Check(driver().cuMemHostGetDevicePointer(&device_address, host.data(), 0)));
  EXPECT_OK(Check(driver().cuMemHostUnregister(host.data())));
  EXPECT_VIOLATION(driver().cuMemHostUnregister(host.data()), "no range begins there");
}

}  // namespace
}  // namespace crossmesh
