// What queues of transports make of schedules.

#include "common/testing/status_matchers.h"
#include "planner/pipeline/queues.h"
#include "planner/pipeline/schedules/placement.h"
#include "planner/pipeline/schedules/schedule_names.h"
#include "planner/pipeline/testing/pipeline_vectors.h"
#include "planner/pipeline/timeline.h"

#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using Json = nlohmann::json;

TEST(QueuesOfSchedulesTest, TimesAreThoseOfTheCases) {
  const Json& cases = PipelineCases("stream_cases");
  ASSERT_EQ(cases.size(), 14u);
  for (const Json& json : cases) {
    std::string name = json["schedule"];
    if (name == "zbv") name = "zb_v";
    if (name == "dualpipe_v") name = "dual_pipe_v";
    const int32_t ranks = json["devices"], chunks = json["chunks_per_device"];
    SCOPED_TRACE(json.dump());
    const PipelineProfile profile =
        PlacedBy(name == "interleaved_1f1b" ? LoopedRank : VRank, ranks,
                 UniformProfile(ranks * chunks, json["t_F=t_I=t_W"], json["c"]));
    ASSERT_OK_AND_ASSIGN(
        const Schedule schedule,
        MakeNamedSchedule(name, {.profile = profile, .microbatches = json["microbatches"]}));
    ASSERT_OK_AND_ASSIGN(const OpTable ops, OpTable::Create(schedule, profile));
    ASSERT_OK_AND_ASSIGN(const PipelineTimeline run,
                         SimulatePipeline(ops, TransferModel::kLatency));
    EXPECT_NEAR(run.seconds, json["latency_model_time"], 1e-6);
    for (const auto& [placement, placement_name] :
         {std::pair(ReceivePlacement::kAtSend, "passive"),
          std::pair(ReceivePlacement::kBeforeUse, "recv_before_use")}) {
      ASSERT_OK_AND_ASSIGN(const RankActions actions, MakeRankActions(ops, placement));
      for (const auto& [scope, scope_name] :
           {std::pair(QueueScope::kRank, "device"), std::pair(QueueScope::kPeer, "peer"),
            std::pair(QueueScope::kTransfer, "edge")}) {
        const Json& expected = json[absl::StrCat(placement_name, "/", scope_name)];
        SCOPED_TRACE(absl::StrCat(placement_name, "/", scope_name));
        const absl::StatusOr<double> seconds = SimulateQueues(ops, actions, {.scope = scope});
        if (expected == "deadlock") {
          EXPECT_THAT(seconds, StatusIs(absl::StatusCode::kFailedPrecondition));
        } else {
          ASSERT_OK(seconds);
          EXPECT_NEAR(*seconds, expected, 1e-6);
        }
      }
    }
  }
}

}  // namespace
}  // namespace crossmesh
