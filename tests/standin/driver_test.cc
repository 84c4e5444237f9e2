// The rules of the stand-in for the driver that no test of the product breaks.

#include "tests/standin/stand_in_fixture.h"

#include <future>
#include <thread>

namespace crossmesh {
namespace {

// Waits for a promise.
void Wait(const StandInLaunch* launch) {
  (*static_cast<std::promise<void>**>(launch->arguments[0]))->get_future().wait();
}
constexpr size_t kWaitBytes[] = {sizeof(void*)};

class DriverTest : public StandInTest {
 protected:
  // Keeps the stream busy until the gate is open.
  void Block() {
    stand_in_->AddKernel(
        {.name = "wait", .run = Wait, .argument_count = 1, .argument_bytes = kWaitBytes});
    CUfunction wait = nullptr;
    ASSERT_OK(Check(driver().cuModuleLoadData(&module_, "image")));
    ASSERT_OK(Check(driver().cuModuleGetFunction(&wait, module_, "wait")));
    std::promise<void>* address = &gate_;
    void* arguments[] = {&address};
    ASSERT_OK(Check(
        driver().cuLaunchKernel(wait, 1, 1, 1, 1, 1, 1, 0, gpu_->stream(), arguments, nullptr)));
  }
  void Unblock() {
    gate_.set_value();
    ASSERT_OK(gpu_->Synchronize());
  }
  CUevent MakeEvent() {
    CUevent event = nullptr;
    EXPECT_OK(Check(driver().cuEventCreate(&event, CU_EVENT_DISABLE_TIMING)));
    return event;
  }

  CUmodule module_ = nullptr;
  std::promise<void> gate_;
};

TEST_F(DriverTest, AnEventThatWasNotRecordedCannotBeWaitedFor) {
  const CUevent event = MakeEvent();
  EXPECT_VIOLATION(driver().cuStreamWaitEvent(gpu_->stream(), event, 0),
                   "cuStreamWaitEvent: the event has not been recorded");
  EXPECT_VIOLATION(driver().cuEventQuery(event), "the event has not been recorded");
  EXPECT_VIOLATION(driver().cuEventSynchronize(event), "the event has not been recorded");
  EXPECT_OK(Check(driver().cuEventDestroy(event)));
}

TEST_F(DriverTest, WhatWasDestroyedCannotBeUsed) {
  const CUevent event = MakeEvent();
  EXPECT_OK(Check(driver().cuEventDestroy(event)));
  EXPECT_VIOLATION(driver().cuEventRecord(event, gpu_->stream()), "one that was destroyed");
  CUstream stream = nullptr;
  ASSERT_OK(Check(driver().cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0)));
  EXPECT_OK(Check(driver().cuStreamDestroy(stream)));
  EXPECT_VIOLATION(driver().cuStreamQuery(stream), "one that was destroyed");
}

TEST_F(DriverTest, DefaultStreamsAreRefused) {
  int number = 0;
  const CUdeviceptr address = reinterpret_cast<CUdeviceptr>(&number);
  EXPECT_VIOLATION(driver().cuMemsetD8Async(address, 0, 4, nullptr), "a default stream");
  EXPECT_VIOLATION(driver().cuStreamSynchronize(CU_STREAM_LEGACY), "a default stream");
  CUstream stream = nullptr;
  EXPECT_VIOLATION(driver().cuStreamCreateWithPriority(&stream, CU_STREAM_DEFAULT, 0),
                   "waits for the default stream");
}

// CUDA takes the nearest that there is, and a stream that is to go first does not.
TEST_F(DriverTest, AStreamHasAPriorityThatThereIs) {
  int least = 1;
  int greatest = 1;
  ASSERT_OK(Check(driver().cuCtxGetStreamPriorityRange(&least, &greatest)));
  EXPECT_LT(greatest, least);
  CUstream stream = nullptr;
  ASSERT_OK(Check(driver().cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, greatest)));
  EXPECT_EQ(stand_in_->PriorityOf(stream), greatest);
  EXPECT_EQ(stand_in_->PriorityOf(gpu_->stream()), 0);
  EXPECT_OK(Check(driver().cuStreamDestroy(stream)));
  for (const int none : {greatest - 1, least + 1}) {
    EXPECT_VIOLATION(driver().cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, none),
                     "no priority");
  }
}

TEST_F(DriverTest, RowsAreCopiedWithinTheMemoryOfOneDevice) {
  ASSERT_OK_AND_ASSIGN(const std::span<std::byte> memory, gpu_->Allocate(4096));
  for (size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<std::byte>(i / 16);
  const auto address = reinterpret_cast<CUdeviceptr>(memory.data());
  CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                        .srcDevice = address + 256,
                        .srcPitch = 32,
                        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                        .dstDevice = address,
                        .dstPitch = 16,
                        .WidthInBytes = 16,
                        .Height = 3};
  ASSERT_OK(Check(driver().cuMemcpy2DAsync(&copy, gpu_->stream())));
  ASSERT_OK(gpu_->Synchronize());
  for (const int row : {0, 1, 2, 3}) {
    EXPECT_EQ(memory[16 * row], static_cast<std::byte>(row < 3 ? 16 + 2 * row : row));
  }
  copy.Height = kMappedBytes;  // memory comes in so many bytes
  EXPECT_VIOLATION(driver().cuMemcpy2DAsync(&copy, gpu_->stream()), "not all device memory");
  copy.srcPitch = 15;
  EXPECT_VIOLATION(driver().cuMemcpy2DAsync(&copy, gpu_->stream()), "rows of 16 bytes");
  copy.srcY = 1;
  EXPECT_VIOLATION(driver().cuMemcpy2DAsync(&copy, gpu_->stream()), "of one device's memory");
}

TEST_F(DriverTest, AThreadNeedsAContextOfItsOwnStreams) {
  std::thread([&] {
    EXPECT_VIOLATION(driver().cuStreamQuery(gpu_->stream()), "no current context");
    CUcontext other = nullptr;
    ASSERT_OK(Check(driver().cuDevicePrimaryCtxRetain(&other, 1)));
    ASSERT_OK(Check(driver().cuCtxSetCurrent(other)));
    EXPECT_VIOLATION(driver().cuStreamQuery(gpu_->stream()),
                     "the stream is of device 0, the current context of device 1");
    ASSERT_OK(Check(driver().cuDevicePrimaryCtxRelease(1)));
    EXPECT_VIOLATION(driver().cuStreamQuery(gpu_->stream()), "no current context");
  }).join();
}

TEST_F(DriverTest, AContextThatGoesLeavesNothing) {
  std::thread([&] {
    CUcontext context = nullptr;
    ASSERT_OK(Check(driver().cuDevicePrimaryCtxRetain(&context, 1)));
    ASSERT_OK(Check(driver().cuCtxSetCurrent(context)));
    const CUevent event = MakeEvent();
    EXPECT_VIOLATION(driver().cuDevicePrimaryCtxRelease(1),
                     "leaves 0 streams, 1 events and 0 bytes");
    EXPECT_VIOLATION(driver().cuDevicePrimaryCtxRelease(1), "released more often than retained");
    EXPECT_OK(Check(driver().cuEventDestroy(event)));
  }).join();
}

TEST_F(DriverTest, AModuleStaysWhileItsLaunchesAreQueued) {
  Block();
  EXPECT_VIOLATION(driver().cuModuleUnload(module_), "launches of its functions are still queued");
  Unblock();
  ASSERT_OK(Check(driver().cuModuleUnload(module_)));
  EXPECT_VIOLATION(driver().cuModuleUnload(module_), "no such module, or one that was unloaded");
}

TEST_F(DriverTest, MemoryIsExportedOnlyIfMadeForIt) {
  const MappedMemory memory = MapMemory(/*is_shareable=*/false);
  int fd = -1;
  EXPECT_VIOLATION(driver().cuMemExportToShareableHandle(
                       &fd, memory.handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                   "made without a handle type to share");
  Unmap(memory);
  EXPECT_VIOLATION(driver().cuMemRelease(memory.handle), "no such handle, or it was released");
}

TEST_F(DriverTest, MemoryMustBeMadeAccessibleAndIsUsedWithinItsBounds) {
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

TEST_F(DriverTest, MemoryStaysMappedWhileQueuedWorkUsesIt) {
  const MappedMemory memory = MapMemory();
  ASSERT_OK(Check(SetAccess(memory.address)));
  Block();
  ASSERT_OK(Check(driver().cuMemsetD8Async(memory.address, 1, 8, gpu_->stream())));
  EXPECT_VIOLATION(driver().cuMemUnmap(memory.address, kMappedBytes),
                   "1 queued operations still use the memory");
  Unblock();
  Unmap(memory);
  EXPECT_OK(Check(driver().cuModuleUnload(module_)));
}

TEST_F(DriverTest, HostMemoryIsRegisteredBeforeItIsCopied) {
  ASSERT_OK_AND_ASSIGN(const std::span<std::byte> memory, gpu_->Allocate(4096));
  const auto address = reinterpret_cast<CUdeviceptr>(memory.data());
  std::vector<char> host(4096, 'a');
  EXPECT_VIOLATION(driver().cuMemcpyHtoDAsync(address, host.data(), 4096, gpu_->stream()),
                   "the source is host memory that is not registered");
  ASSERT_OK(Check(driver().cuMemHostRegister(host.data(), host.size(), 0)));
  EXPECT_VIOLATION(driver().cuMemHostRegister(host.data(), host.size(), 0), "4096 bytes");
  EXPECT_OK(Check(driver().cuMemcpyHtoDAsync(address, host.data(), 4096, gpu_->stream())));
  ASSERT_OK(gpu_->Synchronize());
  EXPECT_OK(Check(driver().cuMemHostUnregister(host.data())));
}

TEST_F(DriverTest, FaultsThatCannotBeReadAreRefused) {
  EXPECT_THAT(stand_in_->SetFaults("stall_at"), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(stand_in_->SetFaults("no_such=1"), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_OK(stand_in_->SetFaults("stall_at=3,abort_hangs=1"));
}

}  // namespace
}  // namespace crossmesh
