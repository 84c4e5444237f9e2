#include "worker/gpu/executor/class_boxes.h"

#include "common/testing/status_matchers.h"
#include "worker/executor/testing/tile_memory.h"
#include "worker/gpu/compiler/testing/compiled_parts.h"
#include "worker/gpu/compiler/testing/small_plans.h"
#include "worker/gpu/executor/gpu_legs.h"
#include "worker/gpu/executor/gpu_scales.h"
#include "worker/gpu/executor/testing/executor_rank.h"

#include <cstdint>
#include <memory>
#include <span>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

class ClassBoxesTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_OK_AND_ASSIGN(rank_, ExecutorRank::Create(0, {})); }
  void TearDown() override {
    scales_.reset();
    EXPECT_OK(rank_->Close());
  }

  ClassBoxes BoxesOf(const Plan& plan, const GpuTiles& tiles) {
    auto compiled_parts = CompiledPartsOf(plan, {});
    EXPECT_OK(compiled_parts);
    auto scales = GpuScales::Create(rank_->gpu(), *compiled_parts->front(), tiles.source);
    EXPECT_OK(scales);
    scales_ = *std::move(scales);
    auto boxes = ClassBoxes::Create(*compiled_parts->front(), *scales_, tiles.destination);
    EXPECT_OK(boxes);
    return *std::move(boxes);
  }

  std::unique_ptr<ExecutorRank> rank_;
  std::unique_ptr<GpuScales> scales_;
};

TEST_F(ClassBoxesTest, BoxesOfSourcesHaveTheSizesOfTheirElements) {
  const Plan plan = Made(ConvertedOnOneDevice(100));
  const TileMemory memory(plan);
  const ClassBoxes boxes = BoxesOf(plan, TilesOf(memory, 0));
  ASSERT_EQ(boxes.Of(Side::kSource, 0).size(), 1U);
  EXPECT_EQ(boxes.Of(Side::kSource, 0)[0].row_bytes, 400);
  ASSERT_EQ(boxes.Of(Side::kDestination, 0).size(), 1U);
  EXPECT_EQ(boxes.Of(Side::kDestination, 0)[0].row_bytes, 200);
}

TEST_F(ClassBoxesTest, BoxesThatAreQuantizedHaveRowsAndFactors) {
  const Plan plan = Made(QuantizedOnOneDevice());
  const TileMemory memory(plan);
  const GpuTiles tiles = TilesOf(memory, 0);
  const ClassBoxes boxes = BoxesOf(plan, tiles);
  const std::span<const KernelBox> elements = boxes.Of(Side::kSource, 0);
  // Three rows of two blocks.
  ASSERT_EQ(elements.size(), 3U);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(elements[i].address, tiles.source[0] + i * 128 * 400);
    EXPECT_EQ(elements[i].rows, i < 2 ? 128 : 44);
    EXPECT_EQ(elements[i].row_bytes, 400);
    EXPECT_EQ(elements[i].factors_address, elements[0].factors_address + i * 8);
  }
  const std::span<const KernelBox> scales = boxes.Of(Side::kSource, 1);
  ASSERT_EQ(scales.size(), 1U);
  EXPECT_EQ(scales[0].row_bytes, 24);
  ASSERT_EQ(scales_->matrices().size(), 1U);
  const ScaledMatrix& matrix = scales_->matrices()[0];
  EXPECT_EQ(matrix.address, tiles.source[0]);
  EXPECT_EQ(matrix.scales_address, scales[0].address);
  EXPECT_EQ(matrix.factors_address, elements[0].factors_address);
}

TEST_F(ClassBoxesTest, AllAreInOneList) {
  const Plan plan = Made(QuantizedOnOneDevice());
  const TileMemory memory(plan);
  const ClassBoxes boxes = BoxesOf(plan, TilesOf(memory, 0));
  int32_t count = 0;
  for (const Side side : {Side::kSource, Side::kDestination}) {
    for (const ClassIndex slice_class : {0, 1}) {
      const ClassBoxes::Range range = boxes.RangeOf(side, slice_class);
      EXPECT_EQ(boxes.Of(side, slice_class).data(), &boxes.list()[range.first]);
      count += range.end - range.first;
    }
  }
  EXPECT_EQ(std::ssize(boxes.list()), count);
}

}  // namespace
}  // namespace crossmesh
