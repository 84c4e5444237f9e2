#include "planner/pipeline/shared_ports.h"

#include "common/base/check.h"
#include "common/plan/testing/for_each_seed.h"
#include "common/testing/status_matchers.h"
#include "planner/pipeline/testing/pipeline_vectors.h"
#include "planner/pipeline/testing/random_pipeline.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

// A stage each that sends to one more stage at the end: the first forward ops end at these times.
PipelineProfile SendersTo(const std::vector<double>& ends) {
  PipelineProfile profile;
  const auto sink = static_cast<StageIndex>(ends.size());
  for (StageIndex s = 0; s < sink; ++s) {
    profile.stages.push_back({.rank = s, .forward_seconds = ends[s]});
    profile.edges.push_back({.from = s, .to = sink});
  }
  profile.stages.push_back({.rank = sink, .forward_seconds = 1});
  profile.rank_bytes_max.resize(ends.size() + 1);
  return profile;
}

void Set(double seconds, std::vector<PortIndex> ports, EdgeProfile& edge) {
  edge.forward_seconds = seconds;
  edge.forward_ports = std::move(ports);
}

// When the forward messages of microbatch 0 pass, by edge, of a pipeline in which each stage has
// `microbatches` forward ops and then the backward ops.
std::vector<TimeSpan> PassingOf(const PipelineProfile& profile, MicrobatchIndex m = 0,
                                int32_t microbatches = 1) {
  Schedule schedule{.stages = static_cast<int32_t>(profile.stages.size()),
                    .microbatches = microbatches};
  for (StageIndex s = 0; s < schedule.stages; ++s) {
    std::vector<Op>& row = schedule.ranks.emplace_back();
    for (const OpKind kind : {OpKind::kForward, OpKind::kBackward}) {
      for (MicrobatchIndex each = 0; each < microbatches; ++each) row.push_back({kind, s, each});
    }
  }
  const absl::StatusOr<OpTable> ops = OpTable::Create(schedule, profile);
  CHECK_OK(ops);
  const PipelineTimeline run = RunOf(schedule, profile, TransferModel::kPorts);
  std::vector<TimeSpan> passing;
  for (TransferIndex transfer = 0; transfer < ops->transfers(); transfer += 2) {
    passing.push_back(run.messages[ops->MessageOf(transfer, m)]);
  }
  return passing;
}

void ExpectSpans(const std::vector<TimeSpan>& found, const std::vector<TimeSpan>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_NEAR(found[i].begin, expected[i].begin, 1e-9) << "message " << i;
    EXPECT_NEAR(found[i].end, expected[i].end, 1e-9) << "message " << i;
  }
}

// Both have half of the speed, so both take twice as long.
TEST(SharedPortsTest, TransfersThatNameAPortShareIt) {
  PipelineProfile profile = SendersTo({1, 1});
  Set(2, {0, 4}, profile.edges[0]);
  Set(2, {4, 5}, profile.edges[1]);
  ExpectSpans(PassingOf(profile), {{1, 5}, {1, 5}});
}

TEST(SharedPortsTest, TransfersThatShareNothingTakeTheirOwnTime) {
  PipelineProfile profile = SendersTo({1, 1, 1});
  Set(2, {0}, profile.edges[0]);
  Set(3, {1}, profile.edges[1]);
  Set(4, {}, profile.edges[2]);
  ExpectSpans(PassingOf(profile), {{1, 3}, {1, 4}, {1, 5}});
}

// Alone for a second, then half of the speed while the other passes, then alone again.
TEST(SharedPortsTest, SpeedsChangeWhenOthersBeginAndEnd) {
  PipelineProfile profile = SendersTo({1, 2});
  Set(2, {7}, profile.edges[0]);
  Set(0.5, {7}, profile.edges[1]);
  ExpectSpans(PassingOf(profile), {{1, 3.5}, {2, 3}});
}

// Port 1 gives each of three a third; port 0, which one of these shares, has two thirds left.
TEST(SharedPortsTest, WhatOnePortDoesNotTakeIsLeftToOthers) {
  PipelineProfile profile = SendersTo({1, 1, 1, 1});
  Set(2, {0}, profile.edges[0]);
  Set(2, {0, 1}, profile.edges[1]);
  Set(1, {1}, profile.edges[2]);
  Set(1, {1}, profile.edges[3]);
  // At 4 the first has done all of its two seconds, and the other two their one; the second has one
  // left and is alone.
  ExpectSpans(PassingOf(profile), {{1, 4}, {1, 5}, {1, 4}, {1, 4}});
}

// A channel keeps its order: the second message does not slow the first one.
TEST(SharedPortsTest, MessagesOfATransferGoOneAfterTheOther) {
  PipelineProfile profile = SendersTo({1});
  Set(3, {0}, profile.edges[0]);
  ExpectSpans(PassingOf(profile, 0, 2), {{1, 4}});
  ExpectSpans(PassingOf(profile, 1, 2), {{4, 7}});
}

// What two have in common is theirs alone, however they are connected with others.
TEST(SharedPortsTest, OthersAreSlowedOnlyByWhatTheyShare) {
  PipelineProfile profile = SendersTo({1, 1, 1});
  Set(1, {0}, profile.edges[0]);
  Set(1, {0, 1}, profile.edges[1]);
  Set(1, {1}, profile.edges[2]);
  ExpectSpans(PassingOf(profile), {{1, 3}, {1, 3}, {1, 3}});
  profile.edges[1].forward_ports = {0};
  ExpectSpans(PassingOf(profile), {{1, 3}, {1, 3}, {1, 2}});
}

struct Passing {
  TimeSpan span;
  double seconds = 0;  // that it takes alone
};

std::vector<Passing> PassingBy(PortIndex port, const TransferPorts& ports, const OpTable& ops,
                               const PipelineTimeline& run) {
  std::vector<Passing> all;
  const int32_t microbatches = ops.schedule().microbatches;
  for (MessageIndex message = 0; message < ops.messages(); ++message) {
    const TransferIndex transfer = message / microbatches;
    if (std::ranges::find(ports.Of(transfer), port) == ports.Of(transfer).end()) continue;
    all.push_back({run.messages[message], ops.SecondsOf(transfer, message % microbatches)});
  }
  return all;
}

// Of what passes between these times.
void ExpectNoMoreThanItsTime(const std::vector<Passing>& all, double begin, double end) {
  double seconds = 0;
  for (const Passing& each : all) {
    if (each.span.begin >= begin && each.span.end <= end) seconds += each.seconds;
  }
  if (begin <= end) EXPECT_LE(seconds, end - begin + 1e-9);
}

// By the messages' own times: no port does more than its time allows.
TEST(SharedPortsTest, PortsAreNeverAskedForMoreThanTheyHave) {
  int longer = 0;
  ForEachSeed(200, [&](RandomSource& random) {
    PipelineProfile profile = RandomProfile(random);
    AddRandomPorts(random, profile);
    const Schedule schedule = RandomSchedule(random, profile, 4, BackwardForm::kFull, true);
    ASSERT_OK_AND_ASSIGN(const OpTable ops, OpTable::Create(schedule, profile));
    const PipelineTimeline run = RunOf(schedule, profile, TransferModel::kPorts);
    const TransferPorts ports(profile, TransferModel::kPorts);
    for (PortIndex port = 0; port < ports.size(); ++port) {
      const std::vector<Passing> all = PassingBy(port, ports, ops, run);
      for (const Passing& first : all) {
        for (const Passing& last : all)
          ExpectNoMoreThanItsTime(all, first.span.begin, last.span.end);
        longer += first.span.end - first.span.begin > first.seconds + 1e-9;
      }
    }
  });
  EXPECT_GT(longer, 200);
}

}  // namespace
}  // namespace crossmesh
