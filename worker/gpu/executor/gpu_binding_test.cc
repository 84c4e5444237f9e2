#include "worker/gpu/executor/gpu_binding.h"

#include "common/testing/status_matchers.h"
#include "worker/executor/testing/tile_memory.h"
#include "worker/gpu/compiler/checksum_comparison.h"
#include "worker/gpu/compiler/testing/compiled_parts.h"
#include "worker/gpu/compiler/testing/small_plans.h"
#include "worker/gpu/device/gpu_event.h"
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

TEST_F(GpuBindingTest, BoxesOfSourcesHaveTheSizesOfTheirElements) {
  const Plan plan = Made(ConvertedOnOneDevice(100));
  ASSERT_OK_AND_ASSIGN(const CompiledParts compiled_parts, CompiledPartsOf(plan, {}));
  const TileMemory memory(plan);
  ASSERT_OK_AND_ASSIGN(const auto binding,
                       rank_->executor().Bind(compiled_parts[0], TilesOf(memory, 0)));
  rank_->RunUntil([&] { return binding->uploaded().IsDone().value(); });
  EXPECT_EQ(binding->boxes(Side::kSource, 0).list->row_bytes, 400);
  EXPECT_EQ(binding->boxes(Side::kDestination, 0).list->row_bytes, 200);
}

TEST_F(GpuBindingTest, BoxesThatAreQuantizedHaveRowsAndFactors) {
  const Plan plan = Made(QuantizedOnOneDevice());
  ASSERT_OK_AND_ASSIGN(const CompiledParts compiled_parts, CompiledPartsOf(plan, {}));
  const TileMemory memory(plan);
  const GpuTiles tiles = TilesOf(memory, 0);
  ASSERT_OK_AND_ASSIGN(const auto binding, rank_->executor().Bind(compiled_parts[0], tiles));
  rank_->RunUntil([&] { return binding->uploaded().IsDone().value(); });
  // Three rows of two blocks.
  EXPECT_EQ(binding->scale_blocks(), 6);
  const GpuBinding::Boxes elements = binding->boxes(Side::kSource, 0);
  ASSERT_EQ(elements.count, 3);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(elements.list[i].address, tiles.source[0] + i * 128 * 400);
    EXPECT_EQ(elements.list[i].rows, i < 2 ? 128 : 44);
    EXPECT_EQ(elements.list[i].row_bytes, 400);
    EXPECT_EQ(elements.list[i].factors_address, elements.list[0].factors_address + i * 8);
  }
  const GpuBinding::Boxes scales = binding->boxes(Side::kSource, 1);
  ASSERT_EQ(scales.count, 1);
  EXPECT_EQ(scales.list->row_bytes, 24);
  ASSERT_EQ(binding->scaling().matrix_count, 1);
  const ScaledMatrix& matrix = binding->scaling().matrices[0];
  EXPECT_EQ(matrix.address, tiles.source[0]);
  EXPECT_EQ(matrix.scales_address, scales.list->address);
  EXPECT_EQ(matrix.factors_address, elements.list->factors_address);
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

TEST_F(GpuBindingTest, ItsBoxesAreThoseOfTheTiles) {
  const GpuTiles tiles = TilesOf(chain_.memory, 1);
  ASSERT_OK_AND_ASSIGN(const auto binding, rank_->executor().Bind(chain_.compiled_parts[1], tiles));
  rank_->RunUntil([&] { return binding->uploaded().IsDone().value(); });
  const GpuBinding::Boxes boxes = binding->boxes(Side::kDestination, 0);
  ASSERT_EQ(boxes.count, 1);
  // The stand-in's memory is the host's.
  EXPECT_EQ(boxes.list->address, tiles.destination[0]);
  EXPECT_EQ(boxes.list->row_bytes, 2 * Plan::kLeafBytes);
}

// An unpack that was lost is not to be taken for one that was right, neither at first nor when the
// lists are full of the last execution's hashes.
TEST_F(GpuBindingTest, BytesThatNoUnpackHashedAreLost) {
  ASSERT_OK_AND_ASSIGN(const auto binding,
                       rank_->executor().Bind(chain_.compiled_parts[1], TilesOf(chain_.memory, 1)));
  binding->Prepare({});
  EXPECT_THAT(CompareChecksums(binding->compiled(), binding->hashes()).status,
              StatusIs(absl::StatusCode::kDataLoss));
}

}  // namespace
}  // namespace crossmesh
