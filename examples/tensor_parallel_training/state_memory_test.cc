#include "examples/tensor_parallel_training/state_memory.h"

#include "common/mesh/layout.h"
#include "common/mesh/mesh.h"
#include "common/testing/status_matchers.h"
#include "examples/tensor_parallel_training/small_training.h"
#include "examples/tensor_parallel_training/training_phase.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh::grid_training {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<DeviceId> Devices() { return *ParseDevices("host.0-7"); }

TEST(StateMemoryTest, PartsOfABlockBeginAndEndInsideRows) {
  DeviceRole role{.grids = {{.grid = *ParseGrid("c=2,z=3")}}};
  role.grids[0].place[GridAxis::kC] = 1;
  role.grids[0].place[GridAxis::kZ] = 1;
  const Parameter matrix{
      .name = "matrix", .rows = 6, .columns = 10, .row_axis = GridAxis::kC, .is_matrix = true};
  // Of the last three rows the elements 10 to 20; then such that no row is whole.
  EXPECT_THAT(TileOf(role, matrix), ElementsAre(Box({Interval{4, 5}, Interval{0, 10}})));
  role.grids[0].grid = *ParseGrid("c=2,z=5");
  role.grids[0].place[GridAxis::kZ] = 3;
  EXPECT_THAT(TileOf(role, matrix), ElementsAre(Box({Interval{4, 5}, Interval{8, 10}}),
                                                Box({Interval{5, 6}, Interval{0, 4}})));
}

// Each element of the state is on some device, in the place that a reshard takes it from: what all
// devices write, put together by the layouts, is the state.
TEST(StateMemoryTest, WhatDevicesWriteIsTheStateByTheLayouts) {
  const TrainingSettings settings = SmallAdamTraining();
  Tensors whole = InitialState(settings);
  float next = 1;
  for (auto& [name, values] : whole) {
    for (Eigen::Index i = 0; i < values.size(); ++i) values.data()[i] = next++;
  }
  for (const char* text : {"c=2,r=2,z=2", "z=8", "r=4,data=2", "r=2,z=2|c=2,data=2",
                           "c=2,r=2,z=2 scattered diagonal"}) {
    SCOPED_TRACE(text);
    const GridProgramRequest request = *RequestOf(*ParsePhase(text), settings, Devices());
    const v1::ReshardSide side = SideOf(request, settings, "after-0");
    EXPECT_EQ(side.storage(), "after-0");
    size_t slot = 0;
    for (size_t stage = 0; stage < request.stages.size(); ++stage) {
      for (int64_t of_stage = 0; of_stage < request.stages[stage].mesh->slots(); ++of_stage) {
        const DeviceRole role = RoleOf(request, settings.optimizer, stage, of_stage);
        const StateMemory memory = *StateMemory::Create(side, settings, Devices()[slot++]);
        Tensors state, zeros;
        for (const Parameter& part : StateOf(settings, role.stage)) {
          state[part.name] = CutParameter(role, part, whole.at(part.name));
          zeros[part.name] = 0 * state[part.name];
        }
        std::vector<std::byte> bytes(memory.bytes());
        memory.Write(state, bytes);
        memory.Read(bytes, zeros);
        EXPECT_EQ(zeros, state);
      }
    }
    for (const v1::LayoutRule& rule : side.rules()) {
      const Matrix& values = whole.at(rule.pattern());
      Matrix found = Matrix::Zero(values.rows(), values.cols());
      const Layout layout = *ParseLayout(rule.layout());
      for (const Tile& tile : layout.tiles()->slots) {
        for (const Box& box : tile) {
          found.block(box[0].begin, box[1].begin, box[0].length(), box[1].length()) =
              values.block(box[0].begin, box[1].begin, box[0].length(), box[1].length());
        }
      }
      EXPECT_EQ(found, values) << rule.pattern();
    }
    EXPECT_EQ(side.rules_size(), std::ssize(whole));
  }
}

TEST(StateMemoryTest, RefusesADeviceThatThePhaseDoesNotHave) {
  const TrainingSettings settings = SmallTraining();
  const GridProgramRequest request = *RequestOf(*ParsePhase("r=2"), settings, Devices());
  EXPECT_THAT(StateMemory::Create(SideOf(request, settings, ""), settings, {"host", 2}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("found host.2")));
}

TEST(TrainingPhaseTest, SaysWhatItRefuses) {
  EXPECT_THAT(ParsePhase(""), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("grids")));
  EXPECT_THAT(ParsePhase("r=2 often"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("found often")));
  EXPECT_THAT(ParsePhase("r=2 steps=-1"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("found steps=-1")));
  EXPECT_THAT(ParsePhase("r=2 overlaps=some"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("found some")));
  EXPECT_THAT(RequestOf(*ParsePhase("r=8|z=2"), SmallTraining(), Devices()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("expected 10 devices")));
}

}  // namespace
}  // namespace crossmesh::grid_training
