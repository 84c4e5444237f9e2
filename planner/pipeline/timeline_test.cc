#include "planner/pipeline/timeline.h"

#include "common/plan/testing/for_each_seed.h"
#include "common/testing/is_refused.h"
#include "common/testing/random_cases.h"
#include "common/testing/status_matchers.h"
#include "planner/pipeline/testing/pipeline_vectors.h"
#include "planner/pipeline/testing/random_pipeline.h"

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

constexpr double kTolerance = 1e-6;

TEST(RunTest, TimelinesAreThoseOfTheVectors) {
  int checked = 0;
  for (const PipelineVector& v : PipelineVectors()) {
    if (!v.json.contains("order")) continue;
    ++checked;
    SCOPED_TRACE(v.id);
    ASSERT_OK_AND_ASSIGN(const Schedule schedule, ParseSchedule(OrderOf(v)));
    ASSERT_OK_AND_ASSIGN(const OpTable ops, OpTable::Create(schedule, v.profile));
    ASSERT_OK_AND_ASSIGN(const PipelineTimeline run, SimulatePipeline(ops, v.model));
    const nlohmann::json& expect = v.json["expect"];
    EXPECT_NEAR(run.seconds, expect["iteration_time"], kTolerance);
    EXPECT_NEAR(run.span_seconds, expect["max_device_span"], kTolerance);
    EXPECT_NEAR(BubbleRatio(ops, run), expect["bubble_ratio"], kTolerance);
    OpIndex index = 0;
    for (const nlohmann::json& row : v.json["timeline"]) {
      for (const nlohmann::json& entry : row) {
        SCOPED_TRACE(entry.dump());
        EXPECT_EQ(ToString(ops.op(index)), entry[0].get<std::string>());
        EXPECT_NEAR(run.ops[index].begin, entry[1], kTolerance);
        EXPECT_NEAR(run.ops[index].end, entry[2], kTolerance);
        ++index;
      }
    }
    EXPECT_EQ(index, ops.size());
  }
  EXPECT_EQ(checked, 16);
}

// The least begins of ops that no input, no op before and no fused op contradicts.
std::vector<double> LongestWays(const OpTable& ops) {
  std::vector<double> begin(ops.size(), 0);
  const auto end_of = [&](OpIndex i) { return begin[i] + ops.SecondsOfStep(ops.StepOf(i)); };
  const auto least_of = [&](OpIndex i) {
    const Op& op = ops.op(i);
    const OpIndex step = ops.StepOf(i);
    double least = step > ops.first(ops.rank_of(i)) ? end_of(step - 1) : 0;
    if (const OpIndex local = ops.LocalInput(op); local != OpTable::kNone) {
      least = std::max(least, end_of(local));
    }
    for (const TransferIndex c : ops.TransfersInto(op)) {
      least = std::max(least, end_of(ops.ProducerOf(c, op.microbatch)) +
                                  (ops.Passes(c) ? ops.SecondsOf(c, op.microbatch) : 0));
    }
    return least;
  };
  for (bool is_changing = true; is_changing;) {
    is_changing = false;
    for (OpIndex i = 0; i < ops.size(); ++i) {
      const bool is_pair = ops.op(i).is_fused || ops.StepOf(i) != i;
      const OpIndex other = ops.StepOf(i) == i ? i + 1 : i - 1;
      const double least = is_pair ? std::max(least_of(i), begin[other]) : least_of(i);
      is_changing |= least > begin[i];
      begin[i] = std::max(begin[i], least);
    }
  }
  return begin;
}

// Where transfers share nothing, times are the longest ways.
TEST(RunTest, WithoutPortsTimesAreTheLongestWays) {
  int pairs = 0;
  ForEachSeed(FromEnvironment("CROSSMESH_CASES", 600), [&](RandomSource& random, uint64_t seed) {
    PipelineProfile profile = RandomProfile(random);
    const auto microbatches = 1 + static_cast<int32_t>(seed % 5);
    const BackwardForm form = random.OneIn(2) ? BackwardForm::kSplit : BackwardForm::kFull;
    Schedule schedule = RandomSchedule(random, profile, microbatches, form, random.OneIn(2));
    if (random.OneIn(2)) {
      AddRandomPairs(random, profile);
      FuseRandomOps(random, profile, schedule);
    }
    if (random.OneIn(2)) AddRandomScales(random, microbatches, profile);
    ASSERT_OK_AND_ASSIGN(const OpTable ops, OpTable::Create(schedule, profile));
    ASSERT_OK_AND_ASSIGN(const PipelineTimeline run,
                         SimulatePipeline(ops, TransferModel::kLatency));
    const std::vector<double> begin = LongestWays(ops);
    for (OpIndex i = 0; i < ops.size(); ++i) {
      const OpIndex step = ops.StepOf(i);
      EXPECT_DOUBLE_EQ(run.ops[i].begin, begin[i]);
      EXPECT_DOUBLE_EQ(run.ops[i].end, begin[i] + ops.SecondsOfStep(step));
      EXPECT_EQ(run.ops[i], run.ops[step]);
      pairs += step != i;
    }
  });
  EXPECT_GT(pairs, 300);
}

// Stage 1 begins its second step when the gradient and the activation for it are both there, and
// gives both of its outputs when it ends.
TEST(RunTest, FusedOpsBeginWithAllInputsAndEndAtOnce) {
  PipelineProfile profile = UniformProfile(3, 1, 0.5);
  profile.pairs = {{.forward = 1, .backward = 1, .seconds = 2.25}};
  ASSERT_OK_AND_ASSIGN(const Schedule schedule,
                       ParseSchedule("0F0 0F1 0B0 0B1\n1F0 1F1& 1B0 1B1\n2F0 2B0 2F1 2B1\n"));
  ASSERT_OK_AND_ASSIGN(const OpTable ops, OpTable::Create(schedule, profile));
  ASSERT_OK_AND_ASSIGN(const PipelineTimeline run, SimulatePipeline(ops, TransferModel::kLatency));
  EXPECT_EQ(run.messages[ops.MessageOf(0, 1)], (TimeSpan{2, 2.5}));  // 0F1
  EXPECT_EQ(run.messages[ops.MessageOf(3, 0)], (TimeSpan{6, 6.5}));  // 2B0
  for (const OpIndex index : {ops.Forward(1, 1), ops.Backward(1, 0)}) {
    EXPECT_EQ(run.ops[index], (TimeSpan{6.5, 8.75}));
  }
  EXPECT_EQ(run.messages[ops.MessageOf(2, 1)], (TimeSpan{8.75, 9.25}));  // 1F1
  EXPECT_EQ(run.messages[ops.MessageOf(1, 0)], (TimeSpan{8.75, 9.25}));  // 1B0
  EXPECT_EQ(run.seconds, 9.25 + 3 + 0.5 + 2 + 0.5 + 2);
  EXPECT_DOUBLE_EQ(BubbleRatio(ops, run), 1 - (2 * 6 + 5.25) / (3 * run.seconds));
}

// What takes every rank and port of `run`; expects of each op and message that it comes after what
// it waits for.
std::map<std::string, std::vector<TimeSpan>> BusySpans(const OpTable& ops,
                                                       const PipelineTimeline& run,
                                                       TransferModel model) {
  const TransferPorts ports(ops.profile(), model);
  std::map<std::string, std::vector<TimeSpan>> busy;
  for (OpIndex i = 0; i < ops.size(); ++i) {
    const Op& op = ops.op(i);
    if (ops.StepOf(i) == i) busy[absl::StrCat("rank ", ops.rank_of(i))].push_back(run.ops[i]);
    for (const TransferIndex c : ops.TransfersOutOf(op)) {
      const OpIndex consumer = ops.ConsumerOf(c, op.microbatch);
      const TimeSpan& message = run.messages[ops.MessageOf(c, op.microbatch)];
      if (!ops.Passes(c)) {
        EXPECT_GE(run.ops[consumer].begin, run.ops[i].end);
        continue;
      }
      EXPECT_GE(message.begin, run.ops[i].end);
      EXPECT_GE(run.ops[consumer].begin, message.end);
      if (model == TransferModel::kPorts) {
        EXPECT_GE(message.end - message.begin, ops.SecondsOf(c, op.microbatch) - kTolerance);
        continue;  // passes beside others
      }
      EXPECT_DOUBLE_EQ(message.end - message.begin, ops.SecondsOf(c, op.microbatch));
      for (const PortIndex port : ports.Of(c)) {
        busy[absl::StrCat("port ", port)].push_back(message);
      }
      if (model != TransferModel::kBlocking) continue;
      busy[absl::StrCat("rank ", ops.rank_of(i))].push_back(message);
      busy[absl::StrCat("rank ", ops.rank_of(consumer))].push_back(message);
    }
  }
  return busy;
}

// Under every model nothing overlaps that takes turns at a port or shares a rank, and nothing comes
// before what it waits for.
TEST(RunTest, NothingOverlapsOnARankOrAPort) {
  ForEachSeed(300, [&](RandomSource& random, uint64_t seed) {
    PipelineProfile profile = RandomProfile(random);
    Schedule schedule = RandomSchedule(random, profile, 4, BackwardForm::kFull, random.OneIn(2));
    if (random.OneIn(2)) {
      AddRandomPairs(random, profile);
      FuseRandomOps(random, profile, schedule);
    }
    AddRandomPorts(random, profile);
    if (random.OneIn(2)) AddRandomScales(random, 4, profile);
    ASSERT_OK_AND_ASSIGN(const OpTable ops, OpTable::Create(schedule, profile));
    for (const TransferModel model : kAllTransferModels) {
      SCOPED_TRACE(absl::StrCat("seed ", seed, ", ", TransferModelName(model)));
      ASSERT_OK_AND_ASSIGN(const PipelineTimeline run, SimulatePipeline(ops, model));
      std::map<std::string, std::vector<TimeSpan>> busy = BusySpans(ops, run, model);
      for (auto& [name, spans] : busy) {
        SCOPED_TRACE(name);
        std::ranges::sort(spans, {}, [](const TimeSpan& s) { return std::pair(s.begin, s.end); });
        for (size_t i = 1; i < spans.size(); ++i) EXPECT_GE(spans[i].begin, spans[i - 1].end);
      }
    }
  });
}

// Both stages after stage 0 are sent to by it at once, and stage 1 sends to stage 2 later.
TEST(RunTest, APortOutOfARankIsSharedByItsPeers) {
  PipelineProfile profile = UniformProfile(3, 1, 2);
  profile.edges.push_back({.from = 0, .to = 2, .forward_seconds = 2, .backward_seconds = 2});
  ASSERT_OK_AND_ASSIGN(const Schedule schedule, ParseSchedule("0F0 0B0\n1F0 1B0\n2F0 2B0\n"));
  ASSERT_OK_AND_ASSIGN(const OpTable ops, OpTable::Create(schedule, profile));
  ASSERT_OK_AND_ASSIGN(const PipelineTimeline link, SimulatePipeline(ops, TransferModel::kLink));
  ASSERT_OK_AND_ASSIGN(const PipelineTimeline nic, SimulatePipeline(ops, TransferModel::kNic));
  const MessageIndex skip = ops.MessageOf(4, 0);
  EXPECT_EQ(link.messages[skip], (TimeSpan{1, 3}));
  EXPECT_EQ(nic.messages[skip], (TimeSpan{3, 5}));
  EXPECT_EQ(nic.messages[ops.MessageOf(2, 0)], (TimeSpan{5, 7}));  // into rank 2, after it
}

TEST(RunTest, AnOpThatWaitsForItselfIsRefused) {
  ASSERT_OK_AND_ASSIGN(const Schedule schedule,
                       ParseSchedule("0F0 0B0 0F1 0B1\n1F0 1F1 1B0 1B1\n"));
  const PipelineProfile profile = UniformProfile(2, 1, 0);
  ASSERT_OK_AND_ASSIGN(const OpTable ops, OpTable::Create(schedule, profile));
  for (const TransferModel model : kAllTransferModels) {
    EXPECT_THAT(SimulatePipeline(ops, model), IsRefused("0B0 waits for 1B0"));
  }
}

TEST(RunTest, RanksThatBlockNeedTimeForWhatTheySend) {
  ASSERT_OK_AND_ASSIGN(const Schedule schedule, ParseSchedule("0F0 0B0\n1F0 1B0\n"));
  PipelineProfile profile = UniformProfile(2, 1, 1);
  profile.stages[0].forward_seconds = 0;
  ASSERT_OK_AND_ASSIGN(const OpTable ops, OpTable::Create(schedule, profile));
  EXPECT_OK(SimulatePipeline(ops, TransferModel::kNic));
  EXPECT_THAT(SimulatePipeline(ops, TransferModel::kBlocking), IsRefused("op 0F0"));
}

// Two stages, two microbatches, room for one message at either end of the way forward.
TEST(RunTest, MessagesWaitForTheirPlaces) {
  PipelineProfile profile = UniformProfile(2, 1, 1);
  profile.stages[1].forward_seconds = 4;
  profile.edges[0].forward_ports = {0};
  ASSERT_OK_AND_ASSIGN(const Schedule schedule,
                       ParseSchedule("0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1\n"));
  ASSERT_OK_AND_ASSIGN(const OpTable ops, OpTable::Create(schedule, profile));
  MessagePlaces places(ops.messages(), OpTable::kNone);
  places[ops.MessageOf(0, 1)] = ops.MessageOf(0, 0);
  for (const TransferModel model :
       {TransferModel::kLatency, TransferModel::kLink, TransferModel::kPorts}) {
    ASSERT_OK_AND_ASSIGN(const PipelineTimeline free, SimulatePipeline(ops, model));
    EXPECT_EQ(free.ops[ops.Forward(0, 1)], (TimeSpan{1, 2}));
    EXPECT_EQ(free.messages[ops.MessageOf(0, 1)], (TimeSpan{2, 3}));
    ASSERT_OK_AND_ASSIGN(const PipelineTimeline run, SimulatePipeline(ops, model, places));
    // Its output has no place before the message has left, nor the message before the op has used
    // the other one.
    EXPECT_EQ(run.ops[ops.Forward(0, 1)], (TimeSpan{2, 3}));
    EXPECT_EQ(run.messages[ops.MessageOf(0, 1)], (TimeSpan{6, 7}));
    EXPECT_EQ(run.ops[ops.Forward(1, 1)], free.ops[ops.Forward(1, 1)]);
  }
}

// The second message comes first where it is used, and would need the place of the other.
TEST(RunTest, RanksThatWaitForPlacesForEverAreNamed) {
  const PipelineProfile profile = UniformProfile(2, 1, 0);
  ASSERT_OK_AND_ASSIGN(const Schedule schedule,
                       ParseSchedule("0F0 0F1 0B0 0B1\n1F1 1F0 1B0 1B1\n"));
  ASSERT_OK_AND_ASSIGN(const OpTable ops, OpTable::Create(schedule, profile));
  EXPECT_OK(SimulatePipeline(ops, TransferModel::kLatency));
  MessagePlaces places(ops.messages(), OpTable::kNone);
  places[ops.MessageOf(0, 1)] = ops.MessageOf(0, 0);
  EXPECT_THAT(SimulatePipeline(ops, TransferModel::kLatency, places),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       testing::HasSubstr("for ever: rank 0 at 0B0, rank 1 at 1F1")));
}

// Each message takes the place of the one before it, or of an earlier one.
TEST(RunTest, MorePlacesMakeNothingLater) {
  int slower = 0;
  ForEachSeed(200, [&](RandomSource& random) {
    PipelineProfile profile = RandomProfile(random);
    const Schedule schedule = RandomSchedule(random, profile, 5, BackwardForm::kSplit, true);
    const absl::StatusOr<OpTable> ops = OpTable::Create(schedule, profile);
    ASSERT_OK(ops);
    double less = std::numeric_limits<double>::infinity();
    for (int32_t count = 1; count <= 5; ++count) {
      MessagePlaces places(ops->messages(), OpTable::kNone);
      for (MessageIndex message = 0; message < ops->messages(); ++message) {
        const MicrobatchIndex m = message % 5;
        if (ops->Passes(message / 5) && m >= count) places[message] = message - count;
      }
      const auto run = SimulatePipeline(*ops, TransferModel::kLatency, places);
      if (!run.ok()) continue;  // they wait for ever
      EXPECT_LE(run->seconds, less);
      slower += run->seconds < less;
      less = run->seconds;
    }
    EXPECT_EQ(less, RunOf(schedule, profile).seconds);
  });
  EXPECT_GT(slower, 210);
}

TEST(RunTest, NothingThatTakesNoTimeHasABubble) {
  const PipelineProfile profile = UniformProfile(2, 0, 0);
  ASSERT_OK_AND_ASSIGN(const Schedule schedule, ParseSchedule("0F0 0B0\n1F0 1B0\n"));
  ASSERT_OK_AND_ASSIGN(const OpTable ops, OpTable::Create(schedule, profile));
  EXPECT_EQ(BubbleRatio(ops, *SimulatePipeline(ops, TransferModel::kLatency)), 0);
}

}  // namespace
}  // namespace crossmesh
