// One rank that copies among its own tiles: what is refused, and how tasks follow each other.

#include "worker/gpu/executor/gpu_executor.h"

#include "common/testing/status_matchers.h"
#include "worker/gpu/communicators/nccl_communicator.h"
#include "worker/gpu/compiler/testing/compiled_parts.h"
#include "worker/gpu/compiler/testing/small_plans.h"
#include "worker/gpu/device/gpu_memory.h"
#include "worker/gpu/executor/gpu_legs.h"
#include "worker/gpu/executor/testing/executor_rank.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <span>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kBytes = 5 * Plan::kLeafBytes + 100;
constexpr size_t kTasksMax = 2;

// Notes the order in which tasks end.
class EndOrder final : public TaskObserver {
 public:
  void OnDeviceDone(const TaskKey& /*key*/, const DeviceReport& /*report*/) override {}
  void OnTaskDone(const TaskReport& report) override { instances.push_back(report.key.instance); }

  std::vector<uint32_t> instances;
};

class GpuExecutorTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(rank_, ExecutorRank::Create(0, {.executor = {.tasks_max = kTasksMax}}));
    ASSERT_OK_AND_ASSIGN(const std::string id, MintId(rank_->stand_in().nccl()));
    ASSERT_OK(rank_->Join(1, 0, id));
  }
  void TearDown() override { EXPECT_OK(rank_->Close()); }

  std::shared_ptr<const CompiledPart> CompiledPartOf(const Plan& plan, int64_t staging_bytes = 0) {
    const auto compiled_parts = CompiledPartsOf(plan, {.staging_bytes = staging_bytes});
    EXPECT_OK(compiled_parts);
    return compiled_parts->front();
  }
  GpuTaskSpec Spec(uint32_t instance = 0) {
    auto spec = rank_->Spec(CompiledPartOf(plan_), memory_, instance);
    EXPECT_OK(spec);
    return *std::move(spec);
  }

  const Plan plan_ = Made(OnOneDevice(kBytes));
  const TileMemory memory_{plan_};
  std::unique_ptr<ExecutorRank> rank_;
};

TEST_F(GpuExecutorTest, CopiesTheTilesOfItsDevice) {
  ASSERT_OK_AND_ASSIGN(const TaskReport report, rank_->Run(Spec()));
  EXPECT_OK(memory_.CheckDestination(0));
  EXPECT_OK(memory_.CheckUntouched());
  EXPECT_EQ(report.copied_bytes, kBytes);
  EXPECT_EQ(report.sent_bytes + report.received_bytes, 0);
  ASSERT_EQ(report.devices.size(), 1U);
  EXPECT_EQ(report.devices[0].bytes, kBytes);
  EXPECT_EQ(rank_->executor().counters().tasks_succeeded, 1);
  EXPECT_EQ(rank_->executor().counters().copied_bytes, kBytes);
}

TEST_F(GpuExecutorTest, ScalesAreThoseOfWhatTheTilesHoldInTheRun) {
  const Plan plan = Made(QuantizedOnOneDevice());
  const TileMemory memory(plan);
  ASSERT_OK_AND_ASSIGN(GpuTaskSpec spec, rank_->Spec(CompiledPartOf(plan), memory));
  ASSERT_OK(rank_->Run(spec));
  EXPECT_OK(memory.CheckDestination(0));
  EXPECT_OK(memory.CheckUntouched());

  constexpr int64_t kElements = 300 * 200;
  std::fill_n(memory.tiles(Side::kSource, 0).tensor[0], 2 * kElements, std::byte{0});
  spec.key.instance = 1;
  ASSERT_OK(rank_->Run(spec));
  const BoundTiles& received = memory.tiles(Side::kDestination, 0);
  EXPECT_THAT(std::span(received.tensor[0], kElements), Each(std::byte{0}));
  std::array<float, 6> scales;
  std::memcpy(scales.data(), received.tensor[1], sizeof(scales));
  // That of the least amax.
  EXPECT_THAT(scales, Each(0x1p-100F / 448));
}

TEST_F(GpuExecutorTest, LongRowsAreCopiedByTheDriver) {
  constexpr int64_t kManyBytes = int64_t{32} << 20;
  ASSERT_OK_AND_ASSIGN(const auto memory,
                       GpuMemory::Create(rank_->gpu(), ByteCount(2 * kManyBytes), {}));
  auto* const bytes = reinterpret_cast<uint64_t*>(memory->address());
  const std::span<uint64_t> read(bytes, kManyBytes / sizeof(uint64_t));
  const std::span<uint64_t> written(read.data() + read.size(), read.size());
  std::iota(read.begin(), read.end(), 1);
  ASSERT_OK_AND_ASSIGN(const GpuTaskSpec spec,
                       rank_->Spec(CompiledPartOf(Made(OnOneDevice(kManyBytes))),
                                   GpuTiles{.source = {memory->address()},
                                            .destination = {memory->address() + kManyBytes}}));
  ASSERT_OK_AND_ASSIGN(const TaskReport report, rank_->Run(spec));
  EXPECT_EQ(report.copied_bytes, kManyBytes);
  EXPECT_TRUE(std::ranges::equal(read, written));
  int64_t copies = 0;
  for (const StandInCall& call : rank_->stand_in().Calls()) {
    copies += absl::string_view(call.name) == "cuMemcpyDtoDAsync" ? 1 : 0;
    EXPECT_NE(absl::string_view(call.name), "cuLaunchKernel");
  }
  EXPECT_EQ(copies, 1);
}

TEST_F(GpuExecutorTest, ACompiledPartWithoutStepsEnds) {
  const Plan plan = Made(OnOneDevice(0));
  const TileMemory memory(plan);
  ASSERT_OK_AND_ASSIGN(const GpuTaskSpec spec, rank_->Spec(CompiledPartOf(plan), memory));
  EXPECT_OK(rank_->Run(spec));
}

TEST_F(GpuExecutorTest, TasksFollowEachOtherInTheOrderOfTheirStarts) {
  EndOrder order;
  ASSERT_OK(rank_->executor().Start(Spec(7), order));
  ASSERT_OK(rank_->executor().Start(Spec(3), order));
  rank_->RunUntil([&] { return order.instances.size() == 2; });
  EXPECT_THAT(order.instances, ElementsAre(7, 3));
}

TEST_F(GpuExecutorTest, ATaskThatIsCancelledBeforeItBeginsHarmsNoOther) {
  AwaitedReport first;
  AwaitedReport second;
  ASSERT_OK(rank_->executor().Start(Spec(1), first));
  ASSERT_OK(rank_->executor().Start(Spec(2), second));
  rank_->executor().Cancel(Spec(2).key, absl::CancelledError("enough"));
  EXPECT_FALSE(second.is_there());
  rank_->RunUntil([&] { return first.is_there() && second.is_there(); });
  EXPECT_OK(first.status());
  EXPECT_THAT(second.status(), StatusIs(absl::StatusCode::kCancelled, "enough"));
  EXPECT_OK(rank_->Run(Spec(3)));
}

TEST_F(GpuExecutorTest, ATaskThatIsThereIsRefused) {
  AwaitedReport awaited;
  ASSERT_OK(rank_->executor().Start(Spec(), awaited));
  EXPECT_THAT(rank_->executor().Start(Spec(), awaited),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("operation 1 of epoch 1")));
  EXPECT_EQ(rank_->executor().MovedBytes(Spec().key), 0);
  rank_->RunUntil([&] { return awaited.is_there(); });
  EXPECT_EQ(rank_->executor().MovedBytes(Spec().key), std::nullopt);
}

TEST_F(GpuExecutorTest, TooManyTasksAreRefused) {
  EndOrder order;
  for (uint32_t i = 0; i < kTasksMax; ++i) ASSERT_OK(rank_->executor().Start(Spec(i), order));
  EXPECT_THAT(rank_->executor().Start(Spec(9), order),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("at most 2")));
  rank_->RunUntil([&] { return order.instances.size() == kTasksMax; });
}

TEST_F(GpuExecutorTest, ACompiledPartForMoreStagingIsRefused) {
  ASSERT_OK_AND_ASSIGN(const GpuTaskSpec spec,
                       rank_->Spec(CompiledPartOf(plan_, int64_t{1} << 30), memory_));
  AwaitedReport never;
  EXPECT_THAT(rank_->executor().Start(spec, never),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("a compiled part for 1073741872 bytes of staging"),
                             HasSubstr("8388608"))));
}

TEST_F(GpuExecutorTest, ADeviceAtAnotherRankIsRefused) {
  GpuTaskSpec spec = Spec();
  AwaitedReport never;
  for (const std::vector<int>& ranks : {std::vector<int>{}, {1}, {-1}}) {
    spec.ranks = ranks;
    EXPECT_THAT(
        rank_->executor().Start(spec, never),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("device a.0: expected rank 0")));
  }
}

}  // namespace
}  // namespace crossmesh
