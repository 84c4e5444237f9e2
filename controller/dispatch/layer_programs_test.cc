#include "controller/dispatch/layer_programs.h"

#include "common/testing/status_matchers.h"
#include "common/wire/worker_part_codec.h"
#include "controller/dispatch/testing/sample_layers.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> NamesOf(const v1::LayerProgram::Rank& rank) {
  std::vector<std::string> names;
  for (const v1::LayerProgram::Op& op : rank.ops()) names.push_back(op.name());
  return names;
}

std::vector<std::string> TransfersOf(const v1::LayerProgram& program) {
  std::vector<std::string> names;
  for (const v1::LayerProgram::Transfer& transfer : program.transfers()) {
    names.push_back(transfer.name());
  }
  return names;
}

TEST(LayerProgramsTest, WorkersGetTheRanksAndTransfersOfTheirDevices) {
  const auto planned = PlanSampleLayers();
  ASSERT_OK_AND_ASSIGN(
      const auto programs,
      MakeLayerPrograms(*planned, {{{"a", 0}, {"b", 0}}, {{"c", 0}}, {{"d", 0}}, {{"spare", 0}}}));
  ASSERT_EQ(programs.size(), 4);
  for (const int worker : {0, 1}) {
    const v1::LayerProgram& message = programs[worker].message;
    ASSERT_EQ(message.ranks_size(), 1);
    EXPECT_EQ(message.ranks(0).rank(), 0);
    EXPECT_THAT(NamesOf(message.ranks(0)), ElementsAre("first", "second", "end"));
    EXPECT_EQ(message.ranks(0).ops(1).seconds(), 3);
    EXPECT_THAT(TransfersOf(message), ElementsAre("sum0", "onward", "sum1"));
    EXPECT_THAT(programs[worker].transfers, ElementsAre(0, 1, 2));
  }
  EXPECT_THAT(NamesOf(programs[2].message.ranks(0)), ElementsAre("head"));
  EXPECT_THAT(TransfersOf(programs[2].message), ElementsAre("onward"));
  EXPECT_THAT(programs[2].transfers, ElementsAre(1));
  EXPECT_THAT(programs[3].message.ranks(), IsEmpty());
  EXPECT_THAT(programs[3].message.transfers(), IsEmpty());
}

TEST(LayerProgramsTest, BothEndsAreToldTheSameOfAMessage) {
  const auto planned = PlanSampleLayers();
  ASSERT_OK_AND_ASSIGN(const auto programs,
                       MakeLayerPrograms(*planned, {{{"a", 0}, {"b", 0}}, {{"c", 0}}, {{"d", 0}}}));
  std::map<uint32_t, std::string> plans;
  for (const PlannedLayerProgram& program : programs) {
    for (const v1::LayerProgram::Transfer& transfer : program.message.transfers()) {
      EXPECT_EQ(plans.try_emplace(transfer.plan(), transfer.name()).first->second, transfer.name());
      ASSERT_OK_AND_ASSIGN(const WorkerPart part, FromProto(transfer.part()));
      EXPECT_EQ(part.has_courses(), transfer.name() != "onward");
    }
  }
  // Transfers with one plan are told apart.
  EXPECT_EQ(plans, (std::map<uint32_t, std::string>{{1, "sum0"}, {2, "onward"}, {3, "sum1"}}));
  for (const int worker : {0, 2}) {
    const auto& transfers = programs[worker].message.transfers();
    const auto onward = std::ranges::find(transfers, "onward", &v1::LayerProgram::Transfer::name);
    ASSERT_NE(onward, transfers.end());
    EXPECT_EQ(onward->from(), 0);
    EXPECT_EQ(onward->to(), 1);
    EXPECT_EQ(onward->buffers(), 2);
    ASSERT_EQ(onward->messages_size(), 1);
    // By place among the ops of either rank.
    EXPECT_EQ(onward->messages(0).producer(), 0);
    EXPECT_EQ(onward->messages(0).consumer(), 0);
    EXPECT_THAT(onward->tensors(), ElementsAre("out"));
  }
  const v1::LayerProgram::Transfer& last = programs[1].message.transfers(2);
  EXPECT_EQ(last.messages(0).producer(), 1);
  EXPECT_EQ(last.messages(0).consumer(), 2);
}

TEST(LayerProgramsTest, EveryDeviceNeedsAWorker) {
  const auto planned = PlanSampleLayers();
  const auto programs = MakeLayerPrograms(*planned, {{{"a", 0}, {"b", 0}}, {{"d", 0}}});
  EXPECT_THAT(programs.status(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("device c.0 of rank 0: expected a live worker")));
}

}  // namespace
}  // namespace crossmesh
