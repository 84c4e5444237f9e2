#include "worker/gpu/executor/gpu_binding.h"

#include "common/testing/status_matchers.h"
#include "worker/executor/testing/tile_memory.h"
#include "worker/gpu/compiler/checksum_comparison.h"
#include "worker/gpu/compiler/testing/compiled_parts.h"
#include "worker/gpu/compiler/testing/small_plans.h"
#include "worker/gpu/device/gpu_event.h"
#include "worker/gpu/executor/bound_leg.h"
#include "worker/gpu/executor/testing/chain_task.h"
#include "worker/gpu/executor/testing/executor_rank.h"

#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class GpuBindingTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_OK_AND_ASSIGN(rank_, ExecutorRank::Create(0, {})); }
  void TearDown() override { EXPECT_OK(rank_->Close()); }

  const ChainTask chain_{2};
  std::unique_ptr<ExecutorRank> rank_;
};

TEST_F(GpuBindingTest, ATileWithoutMemoryIsRefusedByName) {
  GpuTiles tiles = TilesOf(chain_.memory, 1);
  tiles.destination[0] = 0;
  EXPECT_THAT(rank_->executor().Bind(chain_.compiled_parts[1], tiles),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("destination of device b.0"),
                             HasSubstr("tensor 0: expected memory for the 131072 bytes"))));
  EXPECT_THAT(rank_->executor().Bind(chain_.compiled_parts[0], {}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("source of device a.0")));
}

TEST_F(GpuBindingTest, ATileBetweenElementsThatAreConvertedIsRefusedByName) {
  const Plan plan = Made(ConvertedOnOneDevice(100));
  ASSERT_OK_AND_ASSIGN(const CompiledParts compiled_parts, CompiledPartsOf(plan, {}));
  const TileMemory memory(plan);
  GpuTiles tiles = TilesOf(memory, 0);
  tiles.source[0] += 2;
  EXPECT_THAT(rank_->executor().Bind(compiled_parts[0], tiles),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("source of device a.0, tensor 0"),
                             HasSubstr("expected memory at a multiple of the 4 bytes"))));
}

TEST_F(GpuBindingTest, MatricesThatHaveScalesAreOnTheGpu) {
  const Plan plan = Made(QuantizedOnOneDevice());
  ASSERT_OK_AND_ASSIGN(const CompiledParts compiled_parts, CompiledPartsOf(plan, {}));
  const TileMemory memory(plan);
  const GpuTiles tiles = TilesOf(memory, 0);
  ASSERT_OK_AND_ASSIGN(const auto binding, rank_->executor().Bind(compiled_parts[0], tiles));
  rank_->RunUntil([&] { return binding->uploaded().IsDone().value(); });
  // Three rows of two blocks.
  EXPECT_EQ(binding->legs()[0].scale_blocks(), 6);
  ASSERT_EQ(binding->legs()[0].scaling().matrix_count, 1);
  EXPECT_EQ(binding->legs()[0].scaling().matrices[0].address, tiles.source[0]);
}

TEST_F(GpuBindingTest, ATileOfWhichScalesAreReadNeedsMemory) {
  const Plan plan = Made(QuantizedOnOneDevice());
  ASSERT_OK_AND_ASSIGN(const CompiledParts compiled_parts, CompiledPartsOf(plan, {}));
  const TileMemory memory(plan);
  GpuTiles tiles = TilesOf(memory, 0);
  tiles.source[0] = 0;
  EXPECT_THAT(rank_->executor().Bind(compiled_parts[0], tiles),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("source of device a.0, tensor 0"),
                             HasSubstr("expected memory for the 120000 bytes"))));
}

TEST_F(GpuBindingTest, TilesThatTheCompiledPartDoesNotTouchNeedNoMemory) {
  EXPECT_OK(rank_->executor().Bind(chain_.compiled_parts[0],
                                   {.source = TilesOf(chain_.memory, 0).source}));
}

TEST_F(GpuBindingTest, ALaunchIsGivenTheBoxesOfItsSegmentsInTheTiles) {
  const GpuTiles tiles = TilesOf(chain_.memory, 1);
  ASSERT_OK_AND_ASSIGN(const auto binding, rank_->executor().Bind(chain_.compiled_parts[1], tiles));
  rank_->RunUntil([&] { return binding->uploaded().IsDone().value(); });
  for (int32_t step = 0; step < 2; ++step) {
    ASSERT_EQ(binding->legs()[0].launches().unpacks(step).size(), 1U);
    const PackArguments arguments =
        binding->legs()[0].ArgumentsOf(binding->legs()[0].launches().unpacks(step)[0]);
    ASSERT_EQ(arguments.segment_count, 1);
    // The stand-in's memory is the host's.
    const PackSegment& segment = arguments.segments[0];
    EXPECT_EQ(segment.begin, step * Plan::kLeafBytes);
    EXPECT_EQ(segment.end, segment.begin + Plan::kLeafBytes);
    EXPECT_EQ(segment.first_hash, step);
    ASSERT_EQ(segment.box_end, segment.first_box + 1);
    EXPECT_EQ(arguments.boxes[segment.first_box].address, tiles.destination[0]);
    EXPECT_EQ(arguments.boxes[segment.first_box].row_bytes, 2 * Plan::kLeafBytes);
  }
}

// An unpack that was lost is not to be taken for one that was right, neither at first nor when the
// lists are full of the last execution's hashes.
TEST_F(GpuBindingTest, BytesThatNoUnpackHashedAreLost) {
  ASSERT_OK_AND_ASSIGN(const auto binding,
                       rank_->executor().Bind(chain_.compiled_parts[1], TilesOf(chain_.memory, 1)));
  binding->Prepare({});
  EXPECT_THAT(CompareChecksums(binding->legs()[0].compiled(), binding->legs()[0].hashes()).status,
              StatusIs(absl::StatusCode::kDataLoss));
}

}  // namespace
}  // namespace crossmesh
