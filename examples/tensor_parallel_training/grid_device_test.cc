#include "examples/tensor_parallel_training/grid_device.h"

#include "common/mesh/mesh.h"
#include "common/testing/status_matchers.h"
#include "examples/tensor_parallel_training/small_training.h"
#include "planner/parallelism/programs/grid_op.h"

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh::grid_training {
namespace {

using ::testing::HasSubstr;

// The first device of a grid.
class GridDeviceTest : public ::testing::Test {
 protected:
  static std::unique_ptr<GridDevice> DeviceOf(const std::string& text) {
    const TrainingSettings settings = SmallTraining();
    const Grid grid = *ParseGrid(text);
    return std::make_unique<GridDevice>(DeviceRole{.settings = settings,
                                                   .stage = {.count = settings.model.layers},
                                                   .grids = {{.grid = grid}}},
                                        InitialState(settings));
  }

  static absl::Status Compute(GridDevice& device, const std::string& op,
                              std::vector<std::pair<std::string, size_t>> inputs = {},
                              std::vector<std::pair<std::string, size_t>> outputs = {}) {
    std::vector<std::vector<std::byte>> memory;
    memory.reserve(inputs.size() + outputs.size());
    std::vector<MessageTile> needed, given;
    for (const auto& [ends, tiles] : {std::pair(&inputs, &needed), std::pair(&outputs, &given)}) {
      for (const auto& [name, floats] : *ends) {
        tiles->push_back({.transfer = name, .bytes = memory.emplace_back(floats * sizeof(float))});
      }
    }
    return device.Compute(*ParseGridOp(op), needed, given);
  }
};

TEST_F(GridDeviceTest, StoresItsPart) {
  EXPECT_EQ(DeviceOf("c=2,r=2,z=2")->parameters().stored("layer0.qkv").size(), 32 * 96 / 8);
  EXPECT_EQ(DeviceOf("c=2,r=2,z=2")->parameters().stored("layer0.qkv.bias").size(), 96 / 2);
  EXPECT_EQ(DeviceOf("r=8")->parameters().stored("layer0.mlp_out.bias").size(), 32);
  EXPECT_EQ(DeviceOf("c=8")->parameters().stored("tokens").size(), 64 * 32 / 8);
}

// Of the diagonal: nothing elsewhere.
TEST_F(GridDeviceTest, StoresVectorsOnTheDiagonalAlone) {
  DeviceRole role{.settings = SmallTraining(),
                  .stage = {.count = 2},
                  .grids = {{.grid = *ParseGrid("c=2,r=2,z=2")}},
                  .form = ActivationForm::kScattered,
                  .vectors = VectorForm::kDiagonal};
  role.grids[0].place[GridAxis::kZ] = 1;
  for (const int64_t r : {0, 1}) {
    role.grids[0].place[GridAxis::kR] = r;
    const GridDevice device(role, InitialState(role.settings));
    EXPECT_EQ(device.parameters().stored("layer0.qkv.bias").size(), r == 0 ? 96 / 4 : 0);
    EXPECT_EQ(device.parameters().stored("layer1.mlp_in.norm_gain").size(), r == 0 ? 32 / 4 : 0);
    EXPECT_EQ(device.parameters().stored("tokens").size(), 64 * 32 / 2);
  }
}

TEST_F(GridDeviceTest, RefusesOpsOfNoStepOfIts) {
  for (const char* op : {"m0.arrive", "m0.leave", "m1.embed", "m0a.embed", "m0.layer2.qkv.norm",
                         "m0.layer0.logits.norm", "m0.norm", "embed", "m0.qkv.update",
                         "spread_vectors", "m0.take_vectors"}) {
    EXPECT_THAT(Compute(*DeviceOf("r=2"), op),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(op)));
  }
}

TEST_F(GridDeviceTest, NeedsThePassToHaveBegun) {
  EXPECT_THAT(Compute(*DeviceOf("r=2"), "m0.layer0.qkv.norm"),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("a pass that has begun")));
}

TEST_F(GridDeviceTest, NeedsItsMessages) {
  const auto device = DeviceOf("c=2,z=2");
  const size_t rows = 64;
  ASSERT_OK(Compute(*device, "m0.embed"));
  ASSERT_OK(Compute(*device, "m0.layer0.qkv.norm", {}, {{"qkv.norm_sum", rows * 2}}));
  EXPECT_THAT(Compute(*device, "m0.layer0.qkv.input"),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("a message qkv.norm_sum")));
  EXPECT_THAT(Compute(*device, "m0.layer0.qkv.input", {{"qkv.norm_sum", rows}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("expected 512 bytes")));
  ASSERT_OK(Compute(*device, "m0.layer0.qkv.input", {{"stage0.qkv.norm_sum", rows * 2}}));
  EXPECT_THAT(Compute(*device, "m0.layer0.qkv.forward"),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("gathered, found a part")));
  EXPECT_OK(Compute(*device, "m0.layer0.qkv.forward", {{"qkv.gather", 16 * 96}},
                    {{"qkv.sum", rows * 96}}));
}

TEST_F(GridDeviceTest, RefusesMessagesThatItHasNoUseFor) {
  EXPECT_THAT(Compute(*DeviceOf("c=2"), "m0.embed", {{"qkv.sum", 1}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("needs, found qkv.sum")));
  EXPECT_THAT(Compute(*DeviceOf("c=2"), "m0.embed", {}, {{"qkv.sum", 1}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("gives, found qkv.sum")));
}

}  // namespace
}  // namespace crossmesh::grid_training
