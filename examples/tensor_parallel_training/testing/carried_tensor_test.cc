#include "examples/tensor_parallel_training/testing/carried_tensor.h"

#include "common/mesh/mesh.h"
#include "common/mesh/topology.h"
#include "common/testing/status_matchers.h"
#include "planner/layers/planned_layers.h"

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh::grid_training {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A message of [2, 3] on a=2, b=2.
class CarriedTensorTest : public ::testing::Test {
 protected:
  static absl::StatusOr<std::vector<std::vector<float>>> Carry(
      LayerProgram::Transfer transfer, const std::string& source, const std::string& destination,
      const std::vector<std::vector<float>>& given) {
    LayerProgram program;
    program.ranks.push_back({std::make_shared<const Mesh>(*ParseMesh("a=2,b=2 on x.0-3"))});
    program.ops = {{.name = "give"}, {.name = "need"}};
    transfer.name = "t";
    transfer.tensors = {
        {.tensor = {.name = "t", .type = DataType::kF32, .shape = *ParseShape("[2, 3]")},
         .source = *ParseLayout(source),
         .destination = *ParseLayout(destination)}};
    transfer.messages = {{0, 1}};
    std::vector<std::vector<std::byte>> bytes;
    for (const std::vector<float>& tile : given) {
      std::memcpy(bytes.emplace_back(tile.size() * sizeof(float)).data(), tile.data(),
                  tile.size() * sizeof(float));
    }
    const auto arrived = CarryTensor(program, transfer, bytes);
    if (!arrived.ok()) return arrived.status();
    // Sums are exact here, in whatever order a plan takes them.
    program.transfers = {transfer};
    const auto planned = PlanLayers(program, Topology());
    if (!planned.ok()) return planned.status();
    EXPECT_THAT(CarryByPlan(program, transfer, *(*planned)->transfers[0].plan, bytes),
                IsOkAndHolds(*arrived));
    std::vector<std::vector<float>> tiles;
    for (const std::vector<std::byte>& tile : *arrived) {
      std::memcpy(tiles.emplace_back(tile.size() / sizeof(float)).data(), tile.data(), tile.size());
    }
    return tiles;
  }

  using Tile = std::vector<float>;
};

TEST_F(CarriedTensorTest, RowsAreGathered) {
  ASSERT_OK_AND_ASSIGN(const auto tiles,
                       Carry({}, "[b, -]", "[-, -]", {{1, 2, 3}, {4, 5, 6}, {1, 2, 3}, {4, 5, 6}}));
  const Tile whole = {1, 2, 3, 4, 5, 6};
  EXPECT_THAT(tiles, ElementsAre(whole, whole, whole, whole));
}

TEST_F(CarriedTensorTest, SummandsAreReducedAndCut) {
  const std::vector<Tile> given = {{1, 2, 3}, {4, 5, 6}, {10, 0, 30}, {40, 50, 60}};
  ASSERT_OK_AND_ASSIGN(const auto sums, Carry({.partial = {"a"}}, "[b, -]", "[a, -]", given));
  EXPECT_THAT(sums,
              ElementsAre(Tile{11, 2, 33}, Tile{11, 2, 33}, Tile{44, 55, 66}, Tile{44, 55, 66}));
  ASSERT_OK_AND_ASSIGN(
      const auto greatest,
      Carry({.partial = {"a"}, .reduction = ReductionKind::kMax}, "[b, -]", "[b, -]", given));
  EXPECT_THAT(greatest,
              ElementsAre(Tile{10, 2, 30}, Tile{40, 50, 60}, Tile{10, 2, 30}, Tile{40, 50, 60}));
}

TEST_F(CarriedTensorTest, CopiesThatDifferAreFound) {
  EXPECT_THAT(Carry({}, "[b, -]", "[-, -]", {{1, 2, 3}, {4, 5, 6}, {1, 2, 3}, {4, 5, 7}}),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("slot 3")));
}

TEST_F(CarriedTensorTest, WhatIsLeftOutIsFound) {
  EXPECT_THAT(Carry({}, "{[0:1, 0:3]; [0:1, 0:3]; [0:1, 0:3]; [1:2, 0:2]}", "[-, -]",
                    {{1, 2, 3}, {1, 2, 3}, {1, 2, 3}, {4, 5}}),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("some missing")));
}

}  // namespace
}  // namespace crossmesh::grid_training
