// A GPU, its streams, events and kernels.

#include "worker/gpu/device/gpu.h"

#include "worker/gpu/device/device_copy.h"
#include "worker/gpu/device/gpu_memory.h"
#include "worker/gpu/device/testing/gpu_fixture.h"
#include "worker/gpu/kernels/kernel.h"
#include "worker/gpu/kernels/kernel_arguments.h"

#include <future>
#include <string>
#include <vector>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Keeps a stream busy until the promise is kept.
void Wait(const StandInLaunch* launch) {
  (*static_cast<std::promise<void>**>(launch->arguments[0]))->get_future().wait();
}
constexpr size_t kWaitBytes[] = {sizeof(void*)};

class GpuStreamTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    stand_in_->AddKernel(
        {.name = "wait", .run = Wait, .argument_count = 1, .argument_bytes = kWaitBytes});
    ASSERT_EQ(driver().cuModuleLoadData(&module_, "image"), CUDA_SUCCESS);
    ASSERT_EQ(driver().cuModuleGetFunction(&wait_, module_, "wait"), CUDA_SUCCESS);
  }
  void TearDown() override {
    EXPECT_EQ(driver().cuModuleUnload(module_), CUDA_SUCCESS);
    GpuTest::TearDown();
  }

  void Block() {
    std::promise<void>* gate = &gate_;
    void* arguments[] = {&gate};
    ASSERT_EQ(
        driver().cuLaunchKernel(wait_, 1, 1, 1, 1, 1, 1, 0, stream_->handle(), arguments, nullptr),
        CUDA_SUCCESS);
  }

  CUmodule module_ = nullptr;
  CUfunction wait_ = nullptr;
  std::promise<void> gate_;
};

TEST_F(GpuTest, GpusAreToldByUuid) {
  EXPECT_THAT(uuids_, ElementsAre("GPU-7374616e-6469-6e00-0000-000000000000",
                                  "GPU-7374616e-6469-6e00-0100-000000000000"));
  EXPECT_EQ(gpu_->uuid(), uuids_[0]);
  EXPECT_EQ(gpu_->device(), 0);
  stream_.reset();
  gpu_.reset();
  ASSERT_OK_AND_ASSIGN(gpu_, Gpu::Create(driver(), uuids_[1]));
  EXPECT_EQ(gpu_->device(), 1);
}

TEST_F(GpuTest, MemoryIsToldFreeAndInAll) {
  ASSERT_OK_AND_ASSIGN(const Gpu::MemoryAmounts amounts, gpu_->Memory());
  EXPECT_EQ(amounts.total.value(), int64_t{1} << 30);
  EXPECT_EQ(amounts.free, amounts.total);
}

TEST_F(GpuTest, AnErrorHasTheCallTheDriversNameForItAndTheGpu) {
  EXPECT_OK(gpu_->Check(CUDA_SUCCESS, "cuEventRecord"));
  EXPECT_THAT(
      gpu_->Check(CUDA_ERROR_INVALID_VALUE, "cuEventRecord"),
      StatusIs(absl::StatusCode::kInternal, AllOf(StartsWith(uuids_[0]), HasSubstr("cuEventRecord"),
                                                  HasSubstr("CUDA_ERROR_INVALID_VALUE (1)"))));
  EXPECT_OK(gpu_->health());
}

TEST_F(GpuTest, AnErrorAfterWhichNothingWorksIsKept) {
  EXPECT_THAT(gpu_->Check(CUDA_ERROR_LAUNCH_FAILED, "cuEventQuery"),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("cuEventQuery")));
  EXPECT_THAT(gpu_->health(), StatusIs(absl::StatusCode::kInternal, HasSubstr("cuEventQuery")));
  EXPECT_EQ(gpu_->Check(CUDA_SUCCESS, "cuLaunchKernel"), gpu_->health());
  EXPECT_EQ(gpu_->Memory().status(), gpu_->health());
}

TEST_F(GpuTest, EveryKernelIsFoundByItsNameAndArguments) {
  for (const Kernel& kernel : Kernels()) {
    switch (kernel.parameter) {
      case KernelParameter::kCopy:
        EXPECT_EQ(kernel.argument_bytes, sizeof(CopyArguments));
        gpu_->KernelNamed<CopyArguments>(kernel.name);
        break;
      case KernelParameter::kPack:
        EXPECT_EQ(kernel.argument_bytes, sizeof(PackArguments));
        gpu_->KernelNamed<PackArguments>(kernel.name);
        break;
      case KernelParameter::kReduce:
        EXPECT_EQ(kernel.argument_bytes, sizeof(ReduceArguments));
        gpu_->KernelNamed<ReduceArguments>(kernel.name);
        break;
      case KernelParameter::kScale:
        EXPECT_EQ(kernel.argument_bytes, sizeof(ScaleArguments));
        gpu_->KernelNamed<ScaleArguments>(kernel.name);
        break;
    }
  }
}

TEST_F(GpuTest, AChunkCostsNoCallButThoseThatWereAskedFor) {
  ASSERT_OK_AND_ASSIGN(const auto memory, GpuMemory::Create(*gpu_, ByteCount(8192), {}));
  const KernelBox box = {
      .address = memory->address(), .rows = 1, .row_bytes = 100, .pitch_bytes = 100};
  const PackSegment segment = {.end = 100, .box_end = 1};
  const PackArguments arguments = {.boxes = &box,
                                   .segments = &segment,
                                   .segment_count = 1,
                                   .packed = AtAddress<std::byte>(memory->address() + 4096)};
  const auto pack = gpu_->KernelNamed<PackArguments>("crossmesh_pack");
  ASSERT_OK_AND_ASSIGN(const auto wire, GpuStream::Create(*gpu_));
  ASSERT_OK_AND_ASSIGN(const auto packed, GpuEvent::Create(*gpu_));
  const size_t calls_before = stand_in_->Calls().size();
  ASSERT_OK(gpu_->Launch(pack, 1, arguments, *stream_));
  ASSERT_OK(packed->Record(*stream_));
  ASSERT_OK(wire->WaitFor(*packed));
  ASSERT_OK(packed->IsDone());
  std::vector<std::string> calls;
  for (const StandInCall& call : stand_in_->Calls()) calls.emplace_back(call.name);
  calls.erase(calls.begin(), calls.begin() + static_cast<ptrdiff_t>(calls_before));
  EXPECT_THAT(calls,
              ElementsAre("cuLaunchKernel", "cuEventRecord", "cuStreamWaitEvent", "cuEventQuery"));
  Finish(*wire);
}

TEST_F(GpuTest, AStreamOfTheGreatestPriorityGoesBeforeOthers) {
  ASSERT_OK_AND_ASSIGN(const auto first, GpuStream::Create(*gpu_, GpuStream::Priority::kGreatest));
  EXPECT_LT(stand_in_->PriorityOf(first->handle()), stand_in_->PriorityOf(stream_->handle()));
}

TEST_F(GpuTest, RowsAreCopiedByOneCall) {
  ASSERT_OK_AND_ASSIGN(const auto memory, GpuMemory::Create(*gpu_, ByteCount(8192), {}));
  auto* bytes = AtAddress<char>(memory->address());
  for (int i = 0; i < 8192; ++i) bytes[i] = static_cast<char>('a' + i / 16 % 16);
  const size_t calls_before = stand_in_->Calls().size();
  DeviceCopy copy = {.from = memory->address(),
                     .to = memory->address() + 4096,
                     .row_bytes = 16,
                     .rows = 3,
                     .from_pitch_bytes = 32,
                     .to_pitch_bytes = 16};
  ASSERT_OK(Queue(*gpu_, copy, *stream_));
  copy = {.from = memory->address() + 8, .to = memory->address() + 4096 + 48, .row_bytes = 16};
  ASSERT_OK(Queue(*gpu_, copy, *stream_));
  EXPECT_EQ(stand_in_->Calls().size(), calls_before + 2);
  Finish();
  EXPECT_EQ(std::string(bytes + 4096, 64), std::string(16, 'a') + std::string(16, 'c') +
                                               std::string(16, 'e') + std::string(8, 'a') +
                                               std::string(8, 'b'));
}

TEST_F(GpuStreamTest, AnEventIsDoneOnceWhatIsBeforeItIs) {
  ASSERT_OK_AND_ASSIGN(const auto event, GpuEvent::Create(*gpu_));
  EXPECT_FALSE(event->is_recorded());
  Block();
  ASSERT_OK(event->Record(*stream_));
  EXPECT_TRUE(event->is_recorded());
  EXPECT_THAT(event->IsDone(), IsOkAndHolds(false));
  gate_.set_value();
  Finish();
  EXPECT_THAT(event->IsDone(), IsOkAndHolds(true));
}

TEST_F(GpuStreamTest, AStreamWaitsForAnotherByAnEvent) {
  ASSERT_OK_AND_ASSIGN(const auto other, GpuStream::Create(*gpu_));
  ASSERT_OK_AND_ASSIGN(const auto event, GpuEvent::Create(*gpu_));
  ASSERT_OK_AND_ASSIGN(const auto after, GpuEvent::Create(*gpu_));
  Block();
  ASSERT_OK(event->Record(*stream_));
  ASSERT_OK(other->WaitFor(*event));
  ASSERT_OK(after->Record(*other));
  EXPECT_THAT(after->IsDone(), IsOkAndHolds(false));
  gate_.set_value();
  Finish(*other);
  EXPECT_THAT(event->IsDone(), IsOkAndHolds(true));
}

TEST_F(GpuStreamTest, ShutdownWaitsForWhatIsQueued) {
  ASSERT_OK_AND_ASSIGN(const auto event, GpuEvent::Create(*gpu_));
  Block();
  ASSERT_OK(event->Record(*stream_));
  gate_.set_value();
  ASSERT_OK(gpu_->SynchronizeForShutdown());
  EXPECT_THAT(event->IsDone(), IsOkAndHolds(true));
}

}  // namespace
}  // namespace crossmesh
