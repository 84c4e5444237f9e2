// Devices, contexts, streams, events, kernels, the log.

#include "tests/standin/stand_in_fixture.h"

#include <cstring>
#include <future>
#include <thread>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::StrEq;

// Adds a number to an int, and waits for a promise if it is given one.
void AddInt(const StandInLaunch* launch) {
  if (auto* gate = *static_cast<std::promise<void>**>(launch->arguments[2]))
    gate->get_future().wait();
  **static_cast<int**>(launch->arguments[0]) +=
      *static_cast<int*>(launch->arguments[1]) * static_cast<int>(launch->grid[0]);
}
constexpr size_t kAddIntBytes[] = {sizeof(int*), sizeof(int), sizeof(void*)};

class DriverTest : public StandInTest {
 protected:
  void SetUp() override {
    StandInTest::SetUp();
    stand_in_->AddKernel(
        {.name = "add_int", .run = AddInt, .argument_count = 3, .argument_bytes = kAddIntBytes});
    ASSERT_OK(Check(driver().cuModuleLoadData(&module_, "image")));
    ASSERT_OK(Check(driver().cuModuleGetFunction(&add_int_, module_, "add_int")));
  }

  void TearDown() override {
    if (module_ != nullptr) {
      EXPECT_OK(Check(driver().cuModuleUnload(module_)));
    }
    StandInTest::TearDown();
  }

  CUresult Launch(int& number, int add, std::promise<void>* gate = nullptr,
                  unsigned int shared_bytes = 0) {
    int* address = &number;
    void* arguments[] = {&address, &add, &gate};
    return driver().cuLaunchKernel(add_int_, 2, 1, 1, 32, 1, 1, shared_bytes, gpu_->stream(),
                                   arguments, nullptr);
  }

  CUevent MakeEvent(unsigned int flags = CU_EVENT_DISABLE_TIMING) {
    CUevent event = nullptr;
    EXPECT_OK(Check(driver().cuEventCreate(&event, flags)));
    return event;
  }

  CUmodule module_ = nullptr;
  CUfunction add_int_ = nullptr;
};

TEST_F(DriverTest, DevicesSayWhatTheyAre) {
  int count = 0;
  ASSERT_OK(Check(driver().cuDeviceGetCount(&count)));
  EXPECT_EQ(count, 2);
  char name[64] = {};
  ASSERT_OK(Check(driver().cuDeviceGetName(name, sizeof(name), 1)));
  EXPECT_STREQ(name, "Crossmesh stand-in GPU 1");
  CUuuid first = {};
  CUuuid second = {};
  ASSERT_OK(Check(driver().cuDeviceGetUuid(&first, 0)));
  ASSERT_OK(Check(driver().cuDeviceGetUuid(&second, 1)));
  EXPECT_NE(std::memcmp(&first, &second, sizeof(first)), 0);
  EXPECT_VIOLATION(driver().cuDeviceGetName(name, sizeof(name), 2), "no device 2");
}

TEST_F(DriverTest, LaunchesRunInOrderWithTheArgumentsOfTheirTime) {
  int number = 0;
  ASSERT_OK(Check(Launch(number, 3)));
  ASSERT_OK(Check(Launch(number, 4)));
  ASSERT_OK(gpu_->Synchronize());
  EXPECT_EQ(number, 14);
}

TEST_F(DriverTest, AStreamIsIdleOnlyOnceItsWorkIsDone) {
  int number = 0;
  std::promise<void> gate;
  ASSERT_OK(Check(Launch(number, 1, &gate)));
  EXPECT_EQ(driver().cuStreamQuery(gpu_->stream()), CUDA_ERROR_NOT_READY);
  gate.set_value();
  ASSERT_OK(gpu_->Synchronize());
  EXPECT_EQ(driver().cuStreamQuery(gpu_->stream()), CUDA_SUCCESS);
}

TEST_F(DriverTest, AnEventHoldsAnotherStreamBack) {
  CUstream other = nullptr;
  ASSERT_OK(Check(driver().cuStreamCreateWithPriority(&other, CU_STREAM_NON_BLOCKING, 0)));
  const CUevent event = MakeEvent();
  const CUevent after = MakeEvent();
  int number = 0;
  std::promise<void> gate;
  ASSERT_OK(Check(Launch(number, 1, &gate)));
  ASSERT_OK(Check(driver().cuEventRecord(event, gpu_->stream())));
  ASSERT_OK(Check(driver().cuStreamWaitEvent(other, event, 0)));
  ASSERT_OK(Check(driver().cuEventRecord(after, other)));
  EXPECT_EQ(driver().cuEventQuery(after), CUDA_ERROR_NOT_READY);
  gate.set_value();
  ASSERT_OK(Check(driver().cuEventSynchronize(after)));
  EXPECT_EQ(number, 2);
  EXPECT_OK(Check(driver().cuEventDestroy(event)));
  EXPECT_OK(Check(driver().cuEventDestroy(after)));
  EXPECT_OK(Check(driver().cuStreamDestroy(other)));
}

TEST_F(DriverTest, EventsMeasureTimeIfMadeFor) {
  const CUevent begin = MakeEvent(CU_EVENT_DEFAULT);
  const CUevent end = MakeEvent(CU_EVENT_DEFAULT);
  const CUevent without = MakeEvent();
  for (const CUevent event : {begin, end, without}) {
    ASSERT_OK(Check(driver().cuEventRecord(event, gpu_->stream())));
  }
  ASSERT_OK(gpu_->Synchronize());
  float milliseconds = -1;
  EXPECT_OK(Check(driver().cuEventElapsedTime(&milliseconds, begin, end)));
  EXPECT_GE(milliseconds, 0);
  EXPECT_VIOLATION(driver().cuEventElapsedTime(&milliseconds, begin, without),
                   "the event was made without time");
  for (const CUevent event : {begin, end, without})
    EXPECT_OK(Check(driver().cuEventDestroy(event)));
}

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
  int number = 0;
  std::promise<void> gate;
  ASSERT_OK(Check(Launch(number, 1, &gate)));
  EXPECT_VIOLATION(driver().cuModuleUnload(module_), "launches of its functions are still queued");
  gate.set_value();
  ASSERT_OK(gpu_->Synchronize());
  ASSERT_OK(Check(driver().cuModuleUnload(module_)));
  module_ = nullptr;
  EXPECT_VIOLATION(Launch(number, 1), "no such module, or one that was unloaded");
}

TEST_F(DriverTest, AFunctionWithoutAHostFunctionIsNotFound) {
  CUfunction function = nullptr;
  EXPECT_THAT(stand_in_->Check(driver().cuModuleGetFunction(&function, module_, "nothing"), "call"),
              StatusIs(absl::StatusCode::kInternal,
                       AllOf(HasSubstr("CUDA_ERROR_NOT_FOUND"),
                             HasSubstr("no host function stands in for nothing"))));
}

TEST_F(DriverTest, MoreSharedMemoryThanAFunctionHasIsRefused) {
  int number = 0;
  EXPECT_VIOLATION(Launch(number, 1, nullptr, 100 << 10), "102400 bytes of shared memory");
}

TEST_F(DriverTest, TheLogHasCallsWithStreamBytesAndTime) {
  ASSERT_OK_AND_ASSIGN(const std::span<std::byte> memory, gpu_->Allocate(4096));
  ASSERT_OK(Check(driver().cuMemsetD8Async(reinterpret_cast<CUdeviceptr>(memory.data()), 7, 100,
                                           gpu_->stream())));
  ASSERT_OK(gpu_->Synchronize());
  EXPECT_EQ(memory[99], std::byte{7});
  EXPECT_EQ(memory[100], std::byte{0});
  const std::vector<StandInCall> calls = stand_in_->Calls();
  EXPECT_THAT(calls,
              Contains(AllOf(Field(&StandInCall::name, StrEq("cuMemsetD8Async")),
                             Field(&StandInCall::stream, gpu_->stream()),
                             Field(&StandInCall::bytes, 100), Field(&StandInCall::result, 0))));
  EXPECT_STREQ(calls.back().name, "cuStreamSynchronize");
  EXPECT_GE(calls.back().end_ns, calls.back().start_ns);
}

TEST_F(DriverTest, FaultsThatCannotBeReadAreRefused) {
  EXPECT_THAT(stand_in_->SetFaults("stall_at"), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(stand_in_->SetFaults("no_such=1"), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_OK(stand_in_->SetFaults("stall_at=3,abort_hangs=1"));
}

}  // namespace
}  // namespace crossmesh
