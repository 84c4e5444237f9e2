#include "planner/pipeline/formats/pipeline_trace.h"

#include "common/plan/testing/for_each_seed.h"
#include "common/testing/status_matchers.h"
#include "planner/pipeline/formats/testing/sample_schedules.h"
#include "planner/pipeline/testing/pipeline_vectors.h"

#include <map>
#include <string>
#include <utility>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using nlohmann::ordered_json;

TEST(PipelineTraceTest, HasOpsOfRanksAndMessages) {
  const Schedule schedule = *ParseSchedule("0F0 0B0\n1F0 1I0 1W0\n");
  const PipelineProfile profile = UniformProfile(2, 1, 0.5);
  ASSERT_OK_AND_ASSIGN(const OpTable ops, OpTable::Create(schedule, profile));
  ASSERT_OK_AND_ASSIGN(const PipelineTimeline run, SimulatePipeline(ops, TransferModel::kLatency));
  std::string lines;
  const ordered_json trace = PipelineTrace(ops, run);
  for (const ordered_json& event : trace["traceEvents"]) {
    absl::StrAppend(&lines, event.dump(), "\n");
  }
  const absl::string_view args = R"("args":{"stage":)";
  EXPECT_EQ(
      lines,
      absl::StrCat(
          R"({"ph":"M","name":"process_name","pid":0,"tid":0,"args":{"name":"ranks"}})", "\n",
          R"({"ph":"M","name":"process_name","pid":1,"tid":0,"args":{"name":"transfers"}})", "\n",
          R"({"ph":"M","name":"thread_name","pid":0,"tid":0,"args":{"name":"rank 0"}})", "\n",
          R"({"ph":"X","name":"0F0","cat":"forward","ts":0.0,"dur":1000000.0,)", args,
          R"(0,"microbatch":0},"pid":0,"tid":0})", "\n",
          R"({"ph":"X","name":"0B0","cat":"backward","ts":4000000.0,"dur":2000000.0,)", args,
          R"(0,"microbatch":0},"pid":0,"tid":0})", "\n",
          R"({"ph":"M","name":"thread_name","pid":0,"tid":1,"args":{"name":"rank 1"}})", "\n",
          R"({"ph":"X","name":"1F0","cat":"forward","ts":1500000.0,"dur":1000000.0,)", args,
          R"(1,"microbatch":0},"pid":0,"tid":1})", "\n",
          R"({"ph":"X","name":"1I0","cat":"input gradient","ts":2500000.0,"dur":1000000.0,)", args,
          R"(1,"microbatch":0},"pid":0,"tid":1})", "\n",
          R"({"ph":"X","name":"1W0","cat":"weight gradient","ts":3500000.0,"dur":1000000.0,)", args,
          R"(1,"microbatch":0},"pid":0,"tid":1})", "\n",
          R"({"ph":"M","name":"thread_name","pid":1,"tid":0,"args":{"name":"activations 0 > 1"}})",
          "\n", R"({"ph":"X","name":"0F0","cat":"transfer","ts":1000000.0,"dur":500000.0,)", args,
          R"(0,"microbatch":0},"pid":1,"tid":0})", "\n",
          R"({"ph":"M","name":"thread_name","pid":1,"tid":1,"args":{"name":"gradients 1 > 0"}})",
          "\n", R"({"ph":"X","name":"1I0","cat":"transfer","ts":3500000.0,"dur":500000.0,)", args,
          R"(1,"microbatch":0},"pid":1,"tid":1})", "\n"));
}

TEST(PipelineTraceTest, FusedOpsAreOneSlice) {
  const Schedule schedule = *ParseSchedule("0F0 0F1& 0B0 0B1\n");
  PipelineProfile profile = UniformProfile(1, 1, 0);
  profile.pairs = {{.forward = 0, .backward = 0, .seconds = 2.5}};
  ASSERT_OK_AND_ASSIGN(const OpTable ops, OpTable::Create(schedule, profile));
  ASSERT_OK_AND_ASSIGN(const PipelineTimeline run, SimulatePipeline(ops, TransferModel::kLatency));
  const ordered_json trace = PipelineTrace(ops, run);
  ASSERT_EQ(trace["traceEvents"].size(), 3u + 3u);
  EXPECT_EQ(trace["traceEvents"][4].dump(),
            R"({"ph":"X","name":"0F1& 0B0","cat":"forward and backward","ts":1000000.0,)"
            R"("dur":2500000.0,"args":{"stage":0,"microbatch":1,"backward_stage":0,)"
            R"("backward_microbatch":0},"pid":0,"tid":0})");
}

// Slices of a row by name, as begin and end.
using Row = std::map<std::string, TimeSpan>;

TEST(PipelineTraceTest, HasEveryOpOnceAndNoneBeforeItsInputs) {
  ForEachSeed(10, [&](RandomSource& random) {
    for (const SampleSchedule& sample : SampleSchedules(random)) {
      SCOPED_TRACE(sample);
      PipelineProfile profile =
          FreeProfile(sample.shape, static_cast<RankIndex>(sample.schedule.ranks.size()));
      for (StageProfile& stage : profile.stages) {
        stage.forward_seconds = stage.input_gradient_seconds = stage.weight_gradient_seconds = 1;
      }
      for (EdgeProfile& edge : profile.edges) edge.forward_seconds = edge.backward_seconds = 0.25;
      ASSERT_OK_AND_ASSIGN(const OpTable ops, OpTable::Create(sample.schedule, profile));
      ASSERT_OK_AND_ASSIGN(const PipelineTimeline run, SimulatePipeline(ops, TransferModel::kLink));
      std::map<std::pair<int32_t, int32_t>, Row> rows;  // by process and thread
      const ordered_json trace = PipelineTrace(ops, run);
      for (const ordered_json& event : trace["traceEvents"]) {
        if (event["ph"] != "X") continue;
        const double begin = event["ts"], end = begin + event["dur"].get<double>();
        Row& row = rows[std::pair(event["pid"].get<int32_t>(), event["tid"].get<int32_t>())];
        const bool is_new =
            row.emplace(event["name"].get<std::string>(), TimeSpan{begin, end}).second;
        EXPECT_TRUE(is_new) << event;
      }
      for (RankIndex rank = 0; rank < profile.ranks(); ++rank) {
        EXPECT_EQ((rows[{0, rank}].size()), sample.schedule.ranks[rank].size());
      }
      for (TransferIndex transfer = 0; transfer < ops.transfers(); ++transfer) {
        if (!ops.Passes(transfer)) continue;
        for (MicrobatchIndex m = 0; m < sample.schedule.microbatches; ++m) {
          const OpIndex from = ops.ProducerOf(transfer, m), to = ops.ConsumerOf(transfer, m);
          const std::string producer = ToString(ops.op(from)), consumer = ToString(ops.op(to));
          const TimeSpan message = rows[{1, transfer}].at(producer);
          EXPECT_LE((rows[{0, ops.rank_of(from)}].at(producer).end), message.begin);
          EXPECT_LE(message.end, (rows[{0, ops.rank_of(to)}].at(consumer).begin));
        }
      }
    }
  });
}

}  // namespace
}  // namespace crossmesh
