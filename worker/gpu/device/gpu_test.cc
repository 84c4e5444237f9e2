// A GPU, its streams and events.

#include "worker/gpu/device/gpu.h"

#include "worker/gpu/device/testing/gpu_fixture.h"

#include <future>
#include <string>

#include <absl/strings/str_cat.h>

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

TEST_F(GpuTest, AnotherUuidIsNotFoundAmongThoseThereAre) {
  EXPECT_THAT(Gpu::Create(driver(), "GPU-00000000-0000-0000-0000-000000000000"),
              StatusIs(absl::StatusCode::kNotFound,
                       AllOf(HasSubstr("no GPU GPU-00000000-0000-0000-0000-000000000000"),
                             HasSubstr(uuids_[0]), HasSubstr(uuids_[1]))));
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
