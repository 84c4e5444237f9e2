#include "planner/pipeline/profile.h"

#include "common/testing/status_matchers.h"
#include "planner/pipeline/testing/pipeline_vectors.h"

#include <cmath>

#include <absl/functional/function_ref.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using testing::HasSubstr;

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
  const auto is_refused = [](const char* message) {
    return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message));
  };
  EXPECT_THAT(CheckMicrobatches(profile, 13),
              is_refused("expected the 3 parts of each sequence as microbatches, found 13"));
  EXPECT_THAT(CheckWholeSequences(profile), is_refused("found them in 3 parts"));
  EXPECT_THAT(Changed([](PipelineProfile& p) { p.sequence_parts = 0; }),
              is_refused("expected sequences in 1 part or more, found 0"));
}

TEST(ProfileTest, NamesTheStageTheRankOrTheEdge) {
  const auto is_refused = [](const char* message) {
    return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message));
  };
  EXPECT_THAT(Validate(PipelineProfile()), is_refused("expected a stage"));
  EXPECT_THAT(Changed([](PipelineProfile& p) { p.stages[1].rank = 3; }),
              is_refused("stage 1: expected a rank below 3, found 3"));
  EXPECT_THAT(Changed([](PipelineProfile& p) { p.stages[1].rank = -1; }), is_refused("stage 1"));
  EXPECT_THAT(Changed([](PipelineProfile& p) { p.stages[1].rank = 0; }),
              is_refused("rank 1: expected a stage"));
  EXPECT_THAT(Changed([](PipelineProfile& p) { p.stages[2].weight_gradient_seconds = -1; }),
              is_refused("stage 2: expected times from 0, found -1"));
  EXPECT_THAT(Changed([](PipelineProfile& p) { p.stages[2].forward_seconds = NAN; }),
              is_refused("stage 2"));
  EXPECT_THAT(Changed([](PipelineProfile& p) { p.stages[0].static_bytes = ByteCount(-5); }),
              is_refused("stage 0: expected sizes from 0, found -5"));
  EXPECT_THAT(Changed([](PipelineProfile& p) { p.edges[0].forward_seconds = INFINITY; }),
              is_refused("edge from stage 0 to 1"));
  EXPECT_THAT(Changed([](PipelineProfile& p) { p.edges[0].backward_bytes = ByteCount(-1); }),
              is_refused("edge from stage 0 to 1"));
  EXPECT_THAT(Changed([](PipelineProfile& p) { p.edges[0] = {.from = 1, .to = 1}; }),
              is_refused("edge from stage 1 to 1"));
  EXPECT_THAT(Changed([](PipelineProfile& p) { p.edges[0].to = 3; }),
              is_refused("edge from stage 0 to 3"));
  EXPECT_THAT(Changed([](PipelineProfile& p) { p.edges.push_back(p.edges[0]); }),
              is_refused("found it again"));
  EXPECT_THAT(Changed([](PipelineProfile& p) { p.edges[0].forward_ports = {2, 2}; }),
              is_refused("ports in ascending order, from 3"));
  EXPECT_THAT(Changed([](PipelineProfile& p) { p.edges[0].backward_ports = {-1}; }),
              is_refused("found -1"));
  EXPECT_THAT(Changed([](PipelineProfile& p) { p.edges[0].to_buffer_bytes = ByteCount(-1); }),
              is_refused("sizes from 0"));
  EXPECT_THAT(Changed([](PipelineProfile& p) { p.microbatch_scale = {1, 0}; }),
              is_refused("above 0, at most 1, found 0"));
  EXPECT_THAT(Changed([](PipelineProfile& p) { p.microbatch_scale = {0.5, 0.25}; }),
              is_refused("expected 1 as the largest scale of a microbatch, found 0.5"));
  EXPECT_THAT(Changed([](PipelineProfile& p) { p.transfer_buffers = 0; }),
              is_refused("at least 1 buffer"));
}

}  // namespace
}  // namespace crossmesh
