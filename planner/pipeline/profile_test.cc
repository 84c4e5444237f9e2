#include "planner/pipeline/profile.h"

#include "common/testing/is_refused.h"
#include "common/testing/status_matchers.h"
#include "planner/pipeline/testing/pipeline_vectors.h"

#include <cmath>

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
