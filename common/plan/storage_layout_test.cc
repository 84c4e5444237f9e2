#include "common/plan/storage_layout.h"

#include "common/plan/testing/tables.h"
#include "common/testing/status_matchers.h"

#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;

TEST(StorageLayout, PutsTilesInManifestOrderAtMultiplesOfTheAlignment) {
  const Mesh two = *ParseMesh("x=2 on a.0-1");
  const Mesh one = *ParseMesh("y=1 on a.1");
  TensorTable::Spec spec;
  spec.sources = {{two, *ParseLayout("[x] chunk")}};
  spec.destinations = {{one, *ParseLayout("[-]")}};
  const auto group = [](int64_t length, DataType type) {
    const std::vector<int64_t> lengths = {length};
    return TensorGroup{.shape = *Shape::Create(lengths), .type = type};
  };
  spec.groups = {group(33, DataType::kF32), group(1, DataType::kU8)};
  spec.group_of_tensor = {0, 1, -1, 0};
  ASSERT_OK_AND_ASSIGN(const TensorTable tensors, TensorTable::Create(std::move(spec)));

  // 17 elements of 4 bytes are 68 bytes, so two units of 64.
  const StorageLayout first = LayOut(tensors, Side::kSource, 0);
  EXPECT_THAT(first.offset_of_tensor, ElementsAre(0, 128, -1, 192));
  EXPECT_EQ(first.bytes, 320);
  // 16 elements; the scalar tensor went to the first slot.
  const StorageLayout second = LayOut(tensors, Side::kSource, 1);
  EXPECT_THAT(second.offset_of_tensor, ElementsAre(0, -1, -1, 64));
  EXPECT_EQ(second.bytes, 128);
  EXPECT_EQ(LayOut(tensors, Side::kDestination, 0).bytes, 0);
  EXPECT_EQ(LayOut(tensors, Side::kDestination, 1).bytes, 192 + 64 + 192);
}

TEST(StorageLayout, TilesHaveTheTypeOfTheirSide) {
  const TensorTable tensors =
      TableOf({TensorOf("[33]: x=1 on a.0 [-] -> x=1 on a.1 [-]", DataType::kF32, DataType::kF16)});
  EXPECT_EQ(LayOut(tensors, Side::kSource, 0).bytes, 192);
  EXPECT_EQ(LayOut(tensors, Side::kDestination, 1).bytes, 128);
}

}  // namespace
}  // namespace crossmesh
