#include "common/plan/element_boundaries.h"

#include "common/base/check.h"
#include "common/plan/testing/for_each_seed.h"
#include "common/plan/testing/random_tensors.h"
#include "common/plan/testing/tables.h"
#include "common/testing/status_matchers.h"

#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

#include <absl/status/statusor.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

// [offset]: where the element begins that has the byte, tensor by tensor.
std::vector<int64_t> BeginsByDefinition(const TensorTable& tensors, const Slicing& slicing,
                                        ClassIndex c) {
  std::vector<int64_t> begins;
  for (const int32_t group : tensors.group_of_tensor()) {
    const int64_t place = group < 0 ? -1 : slicing.grid(group).FindClass(c);
    if (place < 0) continue;
    const int64_t item_bytes = tensors.ItemBytesOf(Side::kDestination, group);
    for (int64_t i = 0; i < slicing.grid(group).bytes[place]; ++i) {
      begins.push_back(std::ssize(begins) - i % item_bytes);
    }
  }
  begins.push_back(std::ssize(begins));
  return begins;
}

void ExpectByDefinition(const TensorTable& tensors) {
  ASSERT_OK_AND_ASSIGN(const Slicing slicing, Slicing::Create(tensors));
  const ElementBoundaries boundaries(tensors, slicing);
  for (ClassIndex c = 0; c < std::ssize(slicing.classes()); ++c) {
    const std::vector<int64_t> begins = BeginsByDefinition(tensors, slicing, c);
    ASSERT_EQ(std::ssize(begins), slicing.classes()[c].bytes + 1);
    for (int64_t offset = 0; offset < std::ssize(begins); ++offset) {
      ASSERT_EQ(boundaries.AtOrBefore(c, offset), begins[offset])
          << "class " << c << " offset " << offset;
      ASSERT_EQ(boundaries.IsBoundary(c, offset), begins[offset] == offset);
    }
  }
}

TensorTable TableInOrder(const std::vector<TensorText>& groups, std::vector<int32_t> order) {
  TensorTable::Spec spec = TableSpecOf(groups);
  spec.group_of_tensor = std::move(order);
  absl::StatusOr<TensorTable> table = TensorTable::Create(std::move(spec));
  CHECK_OK(table);
  return *std::move(table);
}

TensorText ToOne(const char* shape, DataType type) {
  return {shape, "x=1 on a.0", "[-]", "x=1 on b.0", "[-]", type};
}

// To b.0 and b.1, with the explicit tiles of both.
TensorText ToTwo(const char* shape, const char* tiles, DataType type) {
  return {shape, "x=1 on a.0", "[-]", "x=2 on b.0-1", tiles, type};
}

TEST(ElementBoundariesTest, AreWhereTheElementsOfEachTensorAre) {
  const TensorText three_bytes = ToOne("[3]", DataType::kU8);
  const TensorText five_bytes = ToOne("[5]", DataType::kU8);
  const TensorText floats = ToOne("[2]", DataType::kF32);
  ExpectByDefinition(TableInOrder({floats}, {0, 0}));
  ExpectByDefinition(TableInOrder({three_bytes, floats}, {0, -1, 1}));
  ExpectByDefinition(TableInOrder({five_bytes, floats}, {0, 1, 0, 1}));
  // The last group is the one after which nothing is aligned.
  ExpectByDefinition(TableInOrder({floats, five_bytes}, {0, 1, 0}));
}

TEST(ElementBoundariesTest, AreWithinAnAlignedTensorOfSmallElementsAsWell) {
  ExpectByDefinition(
      TableInOrder({ToOne("[4]", DataType::kU8), ToOne("[2]", DataType::kF32)}, {0, 1, 0}));
}

TEST(ElementBoundariesTest, AreThoseOfEachClassWhereOneAloneIsNotAligned) {
  const TensorText floats = ToTwo("[4]", "{[0:2]; [2:4]}", DataType::kF32);
  for (const char* tiles : {"{[0:5]; [5:9]}", "{[0:4]; [4:9]}"}) {
    ExpectByDefinition(TableInOrder({ToTwo("[9]", tiles, DataType::kU8), floats}, {0, 1}));
  }
}

TEST(ElementBoundariesTest, PassOverTensorsWithoutTheClass) {
  const TensorText first_alone = ToTwo("[3]", "{[0:3]; }", DataType::kU8);
  const TensorText second_alone = ToTwo("[5]", "{; [0:5]}", DataType::kU8);
  const TensorText floats = ToTwo("[4]", "{[0:2]; [2:4]}", DataType::kF32);
  ExpectByDefinition(TableInOrder({first_alone, second_alone, floats}, {0, 1, -1, 2, 0, 1, 2}));
}

TEST(ElementBoundariesTest, AreThoseOfRandomTables) {
  ForEachSeed(300, [](RandomSource& random) { ExpectByDefinition(RandomTensorTable(random)); });
}

}  // namespace
}  // namespace crossmesh
