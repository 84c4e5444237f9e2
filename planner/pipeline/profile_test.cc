#include "planner/pipeline/profile.h"

#include "common/testing/is_refused.h"
#include "common/testing/status_matchers.h"
#include "planner/pipeline/testing/pipeline_vectors.h"

#include <cmath>
#include <vector>

#include <absl/functional/function_ref.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

PipelineProfile Valid() { return UniformProfile(3, 1, 0.5); }

absl::Status Changed(absl::FunctionRef<void(PipelineProfile&)> change) {
  PipelineProfile profile = Valid();
  change(profile);
  return Validate(profile);
}

TEST(ProfileTest, ChainsAndSkipsAreValid) {
  EXPECT_OK(Validate(Valid()));
  EXPECT_OK(Changed([](PipelineProfile& p) { p.edges.push_back({.from = 0, .to = 2}); }));
}

TEST(ProfileTest, SequencesInPartsHaveAllOfThem) {
  PipelineProfile profile = Valid();
  EXPECT_OK(CheckWholeSequences(profile));
  profile.sequence_parts = 3;
  EXPECT_OK(Validate(profile));
  EXPECT_OK(CheckMicrobatches(profile, 12));
  EXPECT_THAT(CheckMicrobatches(profile, 13),
              IsRefused("expected the 3 parts of each sequence as microbatches, found 13"));
  EXPECT_THAT(CheckWholeSequences(profile), IsRefused("found them in 3 parts"));
  EXPECT_THAT(Changed([](PipelineProfile& p) { p.sequence_parts = 0; }),
              IsRefused("expected sequences in 1 part or more, found 0"));
}

// Rank 0 has stages 0 and 1; a forward op takes 1, a backward op 2.
TEST(ProfileTest, PairsTakeTheirOwnTimeOrThatOfBothOps) {
  PipelineProfile profile = UniformProfile(2, 1, 0);
  profile.rank_bytes_max.resize(1);
  profile.stages[1].rank = 0;
  profile.pairs = {{.forward = 0, .backward = 1, .seconds = 2.25}};
  EXPECT_OK(Validate(profile));
  const Op forward = {OpKind::kForward, 0, 0};
  EXPECT_EQ(profile.SecondsOfPair(forward, {OpKind::kBackward, 1, 1}), 2.25);
  EXPECT_EQ(profile.SecondsOfPair(forward, {OpKind::kBackward, 0, 1}), 3);
  EXPECT_EQ(profile.SecondsOfPair(forward, {OpKind::kInputGradient, 1, 1}), 2);
  EXPECT_EQ(profile.OfScale(0.5).pairs[0].seconds, 1.125);
  // They overlap for 0.75, and for half of that where one of them is half as large.
  profile.microbatch_scale = {1, 0.5};
  EXPECT_EQ(profile.SecondsOfPair(forward, {OpKind::kBackward, 1, 1}), 1 + 1 - 0.375);
  EXPECT_EQ(profile.SecondsOfPair({OpKind::kForward, 0, 1}, {OpKind::kBackward, 1, 0}),
            0.5 + 2 - 0.375);
}

TEST(ProfileTest, NamesThePair) {
  const auto with_pairs = [](const std::vector<PairProfile>& pairs) {
    return Changed([&](PipelineProfile& p) { p.pairs = pairs; });
  };
  EXPECT_OK(with_pairs({{0, 0, 2}, {1, 1, 3.5}}));
  EXPECT_THAT(with_pairs({{0, 1, 2}}),
              IsRefused("pair of stages 0 and 1: expected two of the 3 stages, on one rank"));
  EXPECT_THAT(with_pairs({{3, 3, 2}}), IsRefused("pair of stages 3 and 3"));
  EXPECT_THAT(with_pairs({{0, -1, 2}}), IsRefused("pair of stages 0 and -1"));
  EXPECT_THAT(
      with_pairs({{1, 1, 2}, {0, 0, 2}}),
      IsRefused("pair of stages 0 and 0: expected each pair once, in ascending order, found "
                "it after that of stages 1 and 1"));
  EXPECT_THAT(with_pairs({{1, 1, 2}, {1, 1, 2}}), IsRefused("expected each pair once"));
  EXPECT_THAT(with_pairs({{2, 2, 1.5}}),
              IsRefused("pair of stages 2 and 2: expected at least the time of either op, 2, found "
                        "1.5"));
  EXPECT_THAT(with_pairs({{2, 2, INFINITY}}), IsRefused("found inf"));
}

TEST(ProfileTest, NamesTheStageTheRankOrTheEdge) {
  EXPECT_THAT(Validate(PipelineProfile()), IsRefused("expected a stage"));
  EXPECT_THAT(Changed([](PipelineProfile& p) { p.stages[1].rank = 3; }),
              IsRefused("stage 1: expected a rank below 3, found 3"));
  EXPECT_THAT(Changed([](PipelineProfile& p) { p.stages[1].rank = -1; }), IsRefused("stage 1"));
  EXPECT_THAT(Changed([](PipelineProfile& p) { p.stages[1].rank = 0; }),
              IsRefused("rank 1: expected a stage"));
  EXPECT_THAT(Changed([](PipelineProfile& p) { p.stages[2].weight_gradient_seconds = -1; }),
              IsRefused("stage 2: expected times from 0, found -1"));
  EXPECT_THAT(Changed([](PipelineProfile& p) { p.stages[2].forward_seconds = NAN; }),
              IsRefused("stage 2"));
  EXPECT_THAT(Changed([](PipelineProfile& p) { p.stages[0].static_bytes = ByteCount(-5); }),
              IsRefused("stage 0: expected sizes from 0, found -5"));
  EXPECT_THAT(Changed([](PipelineProfile& p) { p.edges[0].forward_seconds = INFINITY; }),
              IsRefused("edge from stage 0 to 1"));
  EXPECT_THAT(Changed([](PipelineProfile& p) { p.edges[0].backward_bytes = ByteCount(-1); }),
              IsRefused("edge from stage 0 to 1"));
  EXPECT_THAT(Changed([](PipelineProfile& p) { p.edges[0] = {.from = 1, .to = 1}; }),
              IsRefused("edge from stage 1 to 1"));
  EXPECT_THAT(Changed([](PipelineProfile& p) { p.edges[0].to = 3; }),
              IsRefused("edge from stage 0 to 3"));
  EXPECT_THAT(Changed([](PipelineProfile& p) { p.edges.push_back(p.edges[0]); }),
              IsRefused("found it again"));
  EXPECT_THAT(Changed([](PipelineProfile& p) { p.edges[0].forward_ports = {2, 2}; }),
              IsRefused("ports in ascending order, from 3"));
  EXPECT_THAT(Changed([](PipelineProfile& p) { p.edges[0].backward_ports = {-1}; }),
              IsRefused("found -1"));
  EXPECT_THAT(Changed([](PipelineProfile& p) { p.edges[0].to_buffer_bytes = ByteCount(-1); }),
              IsRefused("sizes from 0"));
  EXPECT_THAT(Changed([](PipelineProfile& p) { p.microbatch_scale = {1, 0}; }),
              IsRefused("above 0, at most 1, found 0"));
  EXPECT_THAT(Changed([](PipelineProfile& p) { p.microbatch_scale = {0.5, 0.25}; }),
              IsRefused("expected 1 as the largest scale of a microbatch, found 0.5"));
  EXPECT_THAT(Changed([](PipelineProfile& p) { p.transfer_buffers = 0; }),
              IsRefused("at least 1 buffer"));
}

}  // namespace
}  // namespace crossmesh
