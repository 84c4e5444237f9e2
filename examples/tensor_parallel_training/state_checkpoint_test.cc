#include "examples/tensor_parallel_training/state_checkpoint.h"

#include "common/mesh/mesh.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_folder.h"
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

using ::testing::HasSubstr;

// Of all devices, of each the stages that it has.
std::vector<DeviceRole> RolesOf(const char* phase, const TrainingSettings& settings) {
  const GridProgramRequest request =
      *RequestOf(*ParsePhase(phase), settings, *ParseDevices("host.0-63"));
  std::vector<DeviceRole> roles;
  for (size_t stage = 0; stage < request.stages.size(); ++stage) {
    for (int64_t slot = 0; slot < request.stages[stage].mesh->slots(); ++slot) {
      roles.push_back(RoleOf(request, settings.optimizer, stage, slot));
    }
  }
  return roles;
}

Tensors NumberedState(const TrainingSettings& settings) {
  Tensors whole = InitialState(settings);
  float next = 1;
  for (auto& [name, values] : whole) {
    for (Eigen::Index i = 0; i < values.size(); ++i) values.data()[i] = next++;
  }
  return whole;
}

Tensors StoredOf(const DeviceRole& role, const Tensors& whole) {
  Tensors state;
  for (const Parameter& part : StateOf(role.settings, role.stage)) {
    state[part.name] = CutParameter(role, part, whole.at(part.name));
  }
  return state;
}

class StateCheckpointTest : public testing::Test {
 protected:
  std::vector<std::string> Write(const char* phase) {
    std::vector<std::string> paths;
    for (const DeviceRole& role : RolesOf(phase, settings_)) {
      paths.push_back(folder_.PathOf(absl::StrCat("file-", written_++)));
      const Tensors state = StoredOf(role, whole_);
      EXPECT_OK(training::WriteCheckpoint(paths.back(), 10, CheckpointBoxesOf(role, state)));
    }
    return paths;
  }

  // Each grid's files are read on every other one.
  void ExpectEveryGridReads(const std::vector<const char*>& phases) {
    for (const char* from : phases) {
      ASSERT_OK_AND_ASSIGN(const training::CheckpointFiles checkpoint,
                           training::CheckpointFiles::Open(Write(from)));
      EXPECT_EQ(checkpoint.steps(), 10);
      for (const char* to : phases) {
        SCOPED_TRACE(absl::StrCat("from ", from, " to ", to));
        for (const DeviceRole& role : RolesOf(to, settings_)) {
          ASSERT_OK_AND_ASSIGN(const Tensors state, ReadState(checkpoint, role));
          ASSERT_TRUE(state == StoredOf(role, whole_));
        }
      }
    }
  }

  TrainingSettings settings_ = SmallAdamTraining(4);
  Tensors whole_ = NumberedState(settings_);
  const TemporaryFolder folder_;
  int written_ = 0;
};

// Shards that begin inside rows, blocks of both cuts, stages, a diagonal: each from all others.
TEST_F(StateCheckpointTest, WhatOneGridWritesEveryOtherOneReads) {
  ExpectEveryGridReads({"c=1", "r=2,z=4", "z=8", "c=4,z=16", "r=4,data=2",
                        "c=2,r=2,z=2 scattered diagonal", "r=2,z=2+c=4@mlp", "r=2,z=2|c=2,data=2",
                        "z=4|r=2 chunks=2 microbatches=2"});
}

// A shard of 2 2/3 rows is the end of one, whole ones, and the begin of another: up to three boxes,
// each with values of its own.
TEST_F(StateCheckpointTest, ShardsOfSeveralBoxesAreReadOnOtherGrids) {
  settings_.model = PlainTransformer("thirds", 1, 24, 8);
  settings_.model.vocabulary = 72;
  settings_.model.tied = false;
  settings_.batch = 18;
  whole_ = NumberedState(settings_);
  size_t boxes = 0;
  for (const DeviceRole& role : RolesOf("z=9", settings_)) {
    for (const Parameter& part : StateOf(role.settings, role.stage)) {
      boxes = std::max(boxes, TileOf(role, part).size());
    }
  }
  EXPECT_EQ(boxes, 3U);
  ExpectEveryGridReads({"c=1", "z=9", "r=2,z=9", "c=2,r=2"});
}

TEST_F(StateCheckpointTest, AFileThatLacksIsNoticed) {
  std::vector<std::string> paths = Write("r=2,z=4");
  paths.pop_back();
  ASSERT_OK_AND_ASSIGN(const training::CheckpointFiles checkpoint,
                       training::CheckpointFiles::Open(paths));
  const std::vector<DeviceRole> roles = RolesOf("r=2,z=4", settings_);
  EXPECT_OK(ReadState(checkpoint, roles.front()).status());
  EXPECT_THAT(ReadState(checkpoint, roles.back()).status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("in one of 7 files")));
}

}  // namespace
}  // namespace crossmesh::grid_training
