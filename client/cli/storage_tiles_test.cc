#include "client/cli/storage_tiles.h"

#include "client/cli/tensor_values.h"
#include "client/safetensors/file.h"
#include "common/mesh/layout_rules.h"
#include "common/reshard/reshard_tensors.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_folder.h"

#include <string>
#include <utility>
#include <vector>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

std::vector<std::pair<int64_t, int64_t>> Stretches(const std::string& shape,
                                                   const std::string& box) {
  std::vector<std::pair<int64_t, int64_t>> stretches;
  ForEachStretch(
      ParseShape(shape).value(), ParseBox(box).value(),
      [&stretches](int64_t first, int64_t count) { stretches.emplace_back(first, count); });
  return stretches;
}

TEST(ForEachStretchTest, JoinsWhatLiesTogether) {
  EXPECT_THAT(Stretches("[4, 6]", "[1:3, 0:6]"), ElementsAre(Pair(6, 12)));
  EXPECT_THAT(Stretches("[4, 6]", "[1:3, 2:5]"), ElementsAre(Pair(8, 3), Pair(14, 3)));
  EXPECT_THAT(Stretches("[2, 2, 3]", "[0:2, 1:2, 0:3]"), ElementsAre(Pair(3, 3), Pair(9, 3)));
  EXPECT_THAT(Stretches("[2, 2, 3]", "[0:2, 0:2, 0:3]"), ElementsAre(Pair(0, 12)));
  EXPECT_THAT(Stretches("[]", "[]"), ElementsAre(Pair(0, 1)));
  EXPECT_THAT(Stretches("[4, 6]", "[1:1, 0:6]"), ElementsAre());
}

class StorageTilesTest : public testing::Test {
 protected:
  StorageTilesTest()
      : values_(Manifest::Create({{.name = "a", .type = DataType::kF32, .shape = ShapeOf({5, 6})},
                                  {.name = "b", .type = DataType::kBF16, .shape = ShapeOf({3})},
                                  {.name = "c", .type = DataType::kU8, .shape = ShapeOf({})}})
                    .value()),
        tensors_(Build()) {}

  static Shape ShapeOf(std::vector<int64_t> lengths) { return Shape::Create(lengths).value(); }

  TensorTable Build() const {
    const Mesh source = ParseMesh("x=2 on a.0-1").value();
    const Mesh destination = ParseMesh("y=2 on b.0-1").value();
    const LayoutRules rows = LayoutRules::Parse("c []\n* [x, ...] chunk").value();
    const LayoutRules columns = LayoutRules::Parse("a [-, y]\n* [...]").value();
    return BuildReshardTensors(values_.manifest(), {source, rows}, {destination, columns}, {})
        .value();
  }

  const GeneratedValues values_;
  const TensorTable tensors_;
  std::atomic<int64_t> done_bytes_ = 0;
};

TEST_F(StorageTilesTest, WhatIsFilledIsRight) {
  for (const Side side : {Side::kSource, Side::kDestination}) {
    for (DeviceRank device = 0; device < 4; ++device) {
      const StorageTiles tiles(tensors_, side, device);
      std::vector<std::byte> memory(tiles.bytes());
      tiles.Fill(values_, memory, done_bytes_);
      EXPECT_OK(tiles.Check(values_, memory, done_bytes_));
    }
  }
}

TEST_F(StorageTilesTest, EveryWrongByteIsFoundAndNamed) {
  const DeviceRank device = *tensors_.FindDevice({.host = "b", .index = 1});
  const StorageTiles tiles(tensors_, Side::kDestination, device);
  std::vector<std::byte> memory(tiles.bytes());
  tiles.Fill(values_, memory, done_bytes_);
  // Columns 3 to 5 of 5 rows, of 4 bytes each: row 2, column 4.
  memory[(2 * 3 + 1) * 4 + 2] ^= std::byte{0x10};
  EXPECT_THAT(tiles.Check(values_, memory, done_bytes_),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("tensor \"a\" element [2, 4] in slot 1 on b.1"),
                             HasSubstr("expected 0x"), HasSubstr("found 0x"))));
}

TEST_F(StorageTilesTest, ElementsThatChangedPlacesAreFound) {
  const DeviceRank device = *tensors_.FindDevice({.host = "a", .index = 0});
  const StorageTiles tiles(tensors_, Side::kSource, device);
  std::vector<std::byte> memory(tiles.bytes());
  tiles.Fill(values_, memory, done_bytes_);
  std::swap_ranges(memory.begin(), memory.begin() + 4, memory.begin() + 4);
  EXPECT_THAT(tiles.Check(values_, memory, done_bytes_), StatusIs(absl::StatusCode::kDataLoss));
}

TEST_F(StorageTilesTest, ReceivedValuesAreConverted) {
  const Mesh mesh = ParseMesh("x=1 on a.0").value();
  const LayoutRules as_it_is = LayoutRules::Parse("* [...]").value();
  const LayoutRules converting =
      LayoutRules::Parse("a [...] as BF16\nb [...] as F32\n* [...]").value();
  ASSERT_OK_AND_ASSIGN(
      const TensorTable tensors,
      BuildReshardTensors(values_.manifest(), {mesh, as_it_is}, {mesh, converting}, {}));
  const ReceivedValues received(values_, tensors);
  EXPECT_EQ(received.manifest().tensors()[0].type, DataType::kBF16);
  EXPECT_EQ(received.manifest().tensors()[2].type, DataType::kU8);
  // A BF16 is the upper half of its F32.
  EXPECT_EQ(received.ElementText(1, 2), values_.ElementText(1, 2) + "0000");
  const StorageTiles tiles(tensors, Side::kDestination, 0);
  std::vector<std::byte> memory(tiles.bytes());
  tiles.Fill(received, memory, done_bytes_);
  EXPECT_OK(tiles.Check(received, memory, done_bytes_));
}

TEST_F(StorageTilesTest, TilesAreSavedUnderTheirNames) {
  const DeviceRank device = *tensors_.FindDevice({.host = "b", .index = 0});
  const StorageTiles tiles(tensors_, Side::kDestination, device);
  std::vector<std::byte> memory(tiles.bytes());
  tiles.Fill(values_, memory, done_bytes_);
  const TemporaryFolder folder;
  const std::string path = folder.PathOf("tiles.safetensors");
  ASSERT_OK(tiles.Save(values_.manifest(), memory, path));
  ASSERT_OK_AND_ASSIGN(const SafetensorsFile file, SafetensorsFile::Open(path));
  ASSERT_EQ(file.header().tensors.size(), 3);
  EXPECT_EQ(ToString(file.header().tensors[0].spec.shape), "[5, 3]");
  EXPECT_EQ(BytesText(file.Bytes(2)), values_.ElementText(2, 0));
}

TEST_F(StorageTilesTest, TensorsWithoutElementsAreSavedWithTheOthers) {
  ASSERT_OK_AND_ASSIGN(
      const Manifest manifest,
      Manifest::Create({{.name = "none", .type = DataType::kBF16, .shape = ShapeOf({0, 8})},
                        {.name = "some", .type = DataType::kU8, .shape = ShapeOf({4})}}));
  const Mesh mesh = ParseMesh("x=2 on a.0-1").value();
  const LayoutRules rules = LayoutRules::Parse("none [-, x]\nsome [x]").value();
  ASSERT_OK_AND_ASSIGN(const TensorTable tensors,
                       BuildReshardTensors(manifest, {mesh, rules}, {mesh, rules}, {}));
  const StorageTiles tiles(tensors, Side::kDestination, 0);
  const std::vector<std::byte> memory(tiles.bytes());
  const TemporaryFolder folder;
  const std::string path = folder.PathOf("tiles.safetensors");
  ASSERT_OK(tiles.Save(manifest, memory, path));
  ASSERT_OK_AND_ASSIGN(const SafetensorsFile file, SafetensorsFile::Open(path));
  ASSERT_EQ(file.header().tensors.size(), 2);
  EXPECT_EQ(file.header().tensors[0].spec.name, "some");
  EXPECT_EQ(file.header().tensors[1].spec.name, "none");
  EXPECT_EQ(ToString(file.header().tensors[1].spec.shape), "[0, 8]");
}

}  // namespace
}  // namespace crossmesh
