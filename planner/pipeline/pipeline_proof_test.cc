#include "planner/pipeline/pipeline_proof.h"

#include "common/testing/is_refused.h"
#include "common/testing/status_matchers.h"
#include "planner/pipeline/testing/pipeline_vectors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr absl::string_view kAlternating = "0F0 0F1 0B0 0F2 0B1 0B2\n1F0 1B0 1F1 1B1 1F2 1B2\n";

absl::StatusOr<PipelineProof> Prove(absl::string_view text, const PipelineProfile& profile,
                                    const PipelineTransport& transport = {}) {
  absl::StatusOr<Schedule> schedule = ParseSchedule(text);
  if (!schedule.ok()) return schedule.status();
  return ProvePipeline(*schedule, profile, transport);
}

TEST(PipelineProofTest, SaysWhatWasProven) {
  PipelineProfile profile = UniformProfile(2, 1, 0.5);
  profile.rank_bytes_max = {ByteCount(2), ByteCount(1)};
  ASSERT_OK_AND_ASSIGN(const PipelineProof proof, Prove(kAlternating, profile));
  EXPECT_EQ(proof.ops, 12);
  EXPECT_EQ(proof.messages, 6);
  EXPECT_EQ(proof.memory[0].bytes(), ByteCount(2));
  EXPECT_EQ(proof.memory[0].peak, (Op{OpKind::kForward, 0, 1}));
  EXPECT_EQ(proof.memory[1].bytes(), ByteCount(1));
}

TEST(PipelineProofTest, RefusesWhatIsIncomplete) {
  EXPECT_THAT(Prove("0F0 0B0 0F1\n1F0 1B0 1F1 1B1\n", UniformProfile(2, 1, 0)),
              IsRefused("stage 0, microbatch 1: expected a backward op"));
}

TEST(PipelineProofTest, RefusesACircle) {
  EXPECT_THAT(Prove("0F0 0B0 0F1 0B1\n1F0 1F1 1B0 1B1\n", UniformProfile(2, 1, 0)),
              IsRefused("0B0 waits for 1B0"));
}

TEST(PipelineProofTest, RefusesPartsOfSequencesInAnotherOrder) {
  PipelineProfile profile = UniformProfile(2, 1, 0);
  EXPECT_OK(Prove("0F0 0F1 0B1 0B0\n1F0 1F1 1B1 1B0\n", profile));
  profile.sequence_parts = 2;
  EXPECT_OK(Prove("0F0 0F1 0B1 0B0\n1F0 1F1 1B1 1B0\n", profile));
  EXPECT_THAT(Prove("0F0 0F1 0B0 0B1\n1F0 1F1 1B0 1B1\n", profile),
              IsRefused("rank 0: expected 0B1 before 0B0, since the parts of a sequence go "
                        "backward in reverse, found it after that"));
  EXPECT_THAT(Prove("0F0 0F1 0B1 0B0\n1F1 1F0 1B1 1B0\n", profile),
              IsRefused("rank 1: expected 1F0 before 1F1, since the parts of a sequence go "
                        "forward in order"));
}

TEST(PipelineProofTest, RefusesEndsThatDisagree) {
  EXPECT_THAT(Prove("0F0 0F1 0B0 0B1\n1F1 1F0 1B0 1B1\n", UniformProfile(2, 1, 0)),
              IsRefused("found 0F0 sent and 0F1 received in place 0"));
}

// In-order queues for each peer, receives posted where they are used: PyTorch's issue 109401.
TEST(PipelineProofTest, RefusesWhatATransportWouldBeStuckAt) {
  const PipelineProfile profile = UniformProfile(2, 1, 0);
  EXPECT_OK(Prove(kAlternating, profile));
  EXPECT_OK(Prove(kAlternating, profile,
                  {.scope = QueueScope::kPeer, .receives = ReceivePlacement::kAtSend}));
  EXPECT_THAT(Prove(kAlternating, profile, {.scope = QueueScope::kPeer}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("rank 0: send 0F1 to rank 1"),
                             HasSubstr("rank 1: send 1B0 to rank 0"))));
}

// A skip connection whose receiver stands before a later message of its peer: PiPPy's issue 969.
TEST(PipelineProofTest, SkipConnectionsHaveTheirOwnTransfers) {
  PipelineProfile profile = UniformProfile(3, 1, 0.5);
  profile.edges.push_back({.from = 0, .to = 2, .forward_seconds = 2, .backward_seconds = 2});
  const absl::string_view text =
      "0F0 0F1 0F2 0B0 0B1 0B2\n1F0 1F1 1B0 1F2 1B1 1B2\n2F0 2B0 2F1 2B1 2F2 2B2\n";
  ASSERT_OK_AND_ASSIGN(const PipelineProof proof, Prove(text, profile));
  EXPECT_EQ(proof.messages, 3 * 6);
  EXPECT_THAT(Prove(text, profile, {.scope = QueueScope::kRank}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("stuck at")));
}

TEST(PipelineProofTest, RefusesTooLittleMemory) {
  PipelineProfile profile = UniformProfile(2, 1, 0);
  profile.rank_bytes_max[0] = ByteCount(1);
  EXPECT_THAT(Prove(kAlternating, profile),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("rank 0: expected at most 1 B, found 2 B at op 0F1")));
}

}  // namespace
}  // namespace crossmesh
