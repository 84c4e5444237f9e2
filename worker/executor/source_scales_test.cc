#include "worker/executor/source_scales.h"

#include "common/base/check.h"
#include "common/plan/testing/random_tensors.h"
#include "common/plan/testing/tables.h"
#include "common/plan/worker_part.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;
using ::testing::Optional;
using ::testing::SizeIs;

// Three tensors, of which two are sent as F8_E4M3 by a.0-1 or a.0 alone, and one as it is by a.2.
TensorTable MakeTable() {
  return TableOf({
      TensorOf("[256, 256]: x=2 on a.0-1 [x, -] -> y=1 on b.0 [-, -]", DataType::kBF16,
               DataType::kF8E4M3),
      TensorOf("[256, 128]: x=1 on a.0 [-, -] -> y=1 on b.0 [-, -]", DataType::kBF16,
               DataType::kF8E4M3),
      TensorOf("[4]: x=1 on a.2 [-] -> y=1 on b.0 [-]"),
  });
}

// Each class goes from its holder to b.0.
std::shared_ptr<const PreparedPart> MakePart() {
  Plan::Spec spec{.tensors = std::make_shared<const TensorTable>(MakeTable())};
  auto slicing = Slicing::Create(*spec.tensors);
  CHECK_OK(slicing);
  spec.slicing = std::make_shared<const Slicing>(*std::move(slicing));
  for (ClassIndex c = 0; c < std::ssize(spec.slicing->classes()); ++c) {
    const DeviceRank from = spec.slicing->holders(c)[0];
    spec.relays.push_back({.slice_class = c,
                           .root = from,
                           .end = spec.slicing->classes()[c].bytes,
                           .first_hop = std::ssize(spec.hops),
                           .hop_count = 1});
    spec.hops.push_back({.from = from, .to = spec.slicing->receivers(c)[0]});
  }
  PlaceHopsInPlanOrder(spec);
  auto plan = Plan::Create(std::move(spec));
  CHECK_OK(plan);
  auto parts = CutParts(*plan, {plan->tensors().devices()});
  CHECK_OK(parts);
  auto part = PreparedPart::Create(std::make_shared<const WorkerPart>(parts->front()));
  CHECK_OK(part);
  return *std::move(part);
}

class SourceScalesTest : public testing::Test {
 protected:
  static constexpr DeviceRank kBoth = 0;  // a.0, which has tiles of two tensors with scales
  static constexpr DeviceRank kOne = 1;   // a.1
  static constexpr DeviceRank kNone = 2;  // a.2

  // Of no more tensors than are given: scales come after them.
  BoundTiles Tiles() { return {.tensor = {elements_.data(), elements_.data(), elements_.data()}}; }

  const std::shared_ptr<const PreparedPart> part_ = MakePart();
  std::vector<std::byte> elements_ = std::vector<std::byte>(256 * 256 * 2);
};

TEST_F(SourceScalesTest, ScalesAreTilesBesideTheGivenOnes) {
  DeviceScales scales(part_->part().tensors(), kBoth, Tiles());
  ASSERT_THAT(scales.tiles().tensor, SizeIs(5));
  for (const int32_t tensor : {0, 1, 2}) EXPECT_EQ(scales.tiles().tensor[tensor], elements_.data());
  EXPECT_NE(scales.tiles().tensor[3], nullptr);
  EXPECT_NE(scales.tiles().tensor[4], nullptr);
}

TEST_F(SourceScalesTest, AStepReadsARowOfBlocks) {
  DeviceScales scales(part_->part().tensors(), kBoth, Tiles());
  std::vector<int64_t> read;
  while (!scales.done()) read.push_back(scales.Step());
  // One row of two blocks, then two rows of one.
  EXPECT_THAT(read, ElementsAre(128 * 256 * 2, 128 * 128 * 2, 128 * 128 * 2));
}

TEST_F(SourceScalesTest, ATensorThatTheDeviceHasNotHasNoScales) {
  DeviceScales one(part_->part().tensors(), kOne, Tiles());
  EXPECT_NE(one.tiles().tensor[3], nullptr);
  EXPECT_EQ(one.tiles().tensor[4], nullptr);
  EXPECT_GT(one.Step(), 0);
  EXPECT_TRUE(one.done());
  const DeviceScales none(part_->part().tensors(), kNone, Tiles());
  EXPECT_TRUE(none.done());
}

TEST_F(SourceScalesTest, DevicesAreDoneInTheOrderInWhichTheyAreFilled) {
  SourceScales scales(*part_, {{kBoth, Tiles()}, {kOne, Tiles()}, {kNone, Tiles()}});
  EXPECT_THAT(scales.devices(), ElementsAre(kBoth, kOne));
  EXPECT_EQ(scales.Find(kNone), nullptr);
  EXPECT_NE(scales.Find(kBoth), nullptr);
  EXPECT_TRUE(scales.idle());
  scales.OnSourceHere(kOne);
  scales.OnSourceHere(kBoth);
  scales.OnSourceHere(kOne);
  EXPECT_THAT(scales.Step().done, Optional(kOne));
  EXPECT_FALSE(scales.idle());
  for (int row = 0; row < 2; ++row) EXPECT_EQ(scales.Step().done, std::nullopt);
  EXPECT_THAT(scales.Step().done, Optional(kBoth));
  EXPECT_TRUE(scales.idle());
}

}  // namespace
}  // namespace crossmesh
