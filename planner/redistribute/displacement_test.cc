#include "planner/redistribute/displacement.h"

#include "common/base/check.h"
#include "planner/redistribute/atom_sizes.h"
#include "planner/redistribute/local_type.h"
#include "planner/redistribute/redistribution_request.h"

#include <cstdint>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

// From [x*y, z] to [z*x, y], of 8 by 4 elements.
RedistributionRequest Turned() {
  RedistributionRequest request{.axes = {{"x", 2}, {"y", 2}, {"z", 2}}, .item_bytes = 4};
  request.shape = *Shape::Create(std::vector<int64_t>{8, 4});
  const SubAxis x{.axis = 0, .size = 2};
  const SubAxis y{.axis = 1, .size = 2};
  const SubAxis z{.axis = 2, .size = 2};
  request.source.dimensions = {{x, y}, {z}};
  request.destination.dimensions = {{z, x}, {y}};
  return request;
}

class DisplacementTest : public testing::Test {
 protected:
  DisplacementTest()
      : types_(Turned(), NeededAtoms(Turned())), space_(*SearchSpace::Create(types_)) {}

  double DisorderOf(const PackedType& type) { return DisplacementCount(space_).Of(type).disorder; }

  // The source, but for where x and y cut the first dimension; 0: nowhere.
  PackedType At(int64_t x_stride, int64_t y_stride) const {
    PackedType type = space_.source();
    type[0] = CodeAt(x_stride);
    type[1] = CodeAt(y_stride);
    return type;
  }

  uint8_t CodeAt(int64_t stride) const {
    if (stride == 0) return kReplicatedCode;
    const std::optional<int> digit = space_.Find({.dimension = 0, .stride = stride, .size = 2});
    CHECK(digit.has_value());
    return static_cast<uint8_t>(kFirstDigit + *digit);
  }

  const TypeSpace types_;
  const SearchSpace space_;
};

TEST_F(DisplacementTest, WhatIsCutFromTheTopOnCounts) {
  EXPECT_EQ(DisorderOf(space_.destination()), 0);
  // All three atoms cut elsewhere than wanted.
  EXPECT_DOUBLE_EQ(DisorderOf(At(4, 2)), 0.75);
  EXPECT_DOUBLE_EQ(DisorderOf(At(4, 0)), 0.75 + 1);
  EXPECT_DOUBLE_EQ(DisorderOf(At(0, 0)), 0.75 + 2);
}

TEST_F(DisplacementTest, BelowAHoleACutCountsForNothing) {
  EXPECT_DOUBLE_EQ(DisorderOf(At(0, 1)), 0.75 + 2);
  EXPECT_DOUBLE_EQ(DisorderOf(At(4, 1)), 0.75 + 1);
  EXPECT_DOUBLE_EQ(DisorderOf(At(2, 4)), 0.5);  // x is where it is wanted
}

}  // namespace
}  // namespace crossmesh
