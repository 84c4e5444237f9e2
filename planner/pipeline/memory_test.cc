#include "planner/pipeline/memory.h"

#include "common/testing/is_refused.h"
#include "common/testing/status_matchers.h"
#include "planner/pipeline/testing/pipeline_vectors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using testing::HasSubstr;

TEST(MemoryTest, PeaksAreThoseOfTheVectors) {
  int checked = 0;
  for (PipelineVector v : PipelineVectors()) {
    if (!v.json.contains("order")) continue;
    ++checked;
    SCOPED_TRACE(v.id);
    ASSERT_OK_AND_ASSIGN(const Schedule schedule, ParseSchedule(OrderOf(v)));
    const auto counts = [&](int64_t input_gradient_bytes, int64_t weight_gradient_bytes) {
      for (StageProfile& stage : v.profile.stages) {
        stage.input_gradient_bytes = ByteCount(input_gradient_bytes);
        stage.weight_gradient_bytes = ByteCount(weight_gradient_bytes);
      }
      std::vector<double> peaks;
      const absl::StatusOr<OpTable> ops = OpTable::Create(schedule, v.profile);
      EXPECT_OK(ops);
      for (const RankMemory& memory : PeakMemory(*ops)) {
        peaks.push_back(static_cast<double>(memory.bytes().value()));
      }
      return peaks;
    };
    EXPECT_EQ(nlohmann::json(counts(0, 1)), v.json["expect"]["peak_in_flight"]);
    EXPECT_EQ(nlohmann::json(counts(1, 0)), v.json["expect"]["peak_in_flight_release_at_I"]);
  }
  EXPECT_EQ(checked, 16);
}

TEST(MemoryTest, SmallMicrobatchesHoldTheirPart) {
  PipelineProfile profile = UniformProfile(1, 1, 0);
  profile.stages[0].input_gradient_bytes = ByteCount(10);
  profile.stages[0].weight_gradient_bytes = ByteCount(5);
  profile.microbatch_scale = {0.5, 1};
  ASSERT_OK_AND_ASSIGN(const Schedule schedule, ParseSchedule("0F0 0F1 0B0 0B1\n"));
  ASSERT_OK_AND_ASSIGN(const OpTable ops, OpTable::Create(schedule, profile));
  EXPECT_EQ(PeakMemory(ops)[0].activation_bytes, ByteCount(5 + 3 + 15));
  profile.microbatch_scale = {0.5, 1, 1};
  EXPECT_THAT(OpTable::Create(schedule, profile), IsRefused("found 3"));
}

// Rank 0 has stages 0 and 2; its peak is where both hold a microbatch and a half.
TEST(MemoryTest, StagesOfARankAndEndsOfTransfersAddUp) {
  PipelineProfile profile = UniformProfile(3, 1, 0);
  profile.rank_bytes_max.resize(2);
  profile.stages[0] = {.rank = 0,
                       .input_gradient_bytes = ByteCount(10),
                       .weight_gradient_bytes = ByteCount(5),
                       .static_bytes = ByteCount(1000)};
  profile.stages[2] = {
      .rank = 0, .input_gradient_bytes = ByteCount(200), .static_bytes = ByteCount(2000)};
  profile.edges[0].forward_bytes = ByteCount(7);
  profile.edges[1].backward_bytes = ByteCount(11);
  profile.edges.push_back({.from = 0, .to = 2, .forward_bytes = ByteCount(1 << 20)});  // not sent
  profile.transfer_buffers = 2;
  ASSERT_OK_AND_ASSIGN(const Schedule schedule,
                       ParseSchedule("0F0 0F1 2F0 2B0 2F1 2B1 0I0 0W0 0I1 0W1\n"
                                     "1F0 1F1 1B0 1B1\n"));
  ASSERT_OK_AND_ASSIGN(const OpTable ops, OpTable::Create(schedule, profile));
  const std::vector<RankMemory> memory = PeakMemory(ops);
  EXPECT_EQ(memory[0], (RankMemory{.static_bytes = ByteCount(3000),
                                   .buffer_bytes = ByteCount(36),
                                   .activation_bytes = ByteCount(230),
                                   .peak = {OpKind::kForward, 2, 0}}));
  EXPECT_OK(CheckMemory(ops, memory));
  profile.rank_bytes_max[0] = ByteCount(3266);
  EXPECT_OK(CheckMemory(ops, memory));
  profile.rank_bytes_max[0] = ByteCount(3265);
  EXPECT_THAT(CheckMemory(ops, memory),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("rank 0: expected at most 3.3 kB, found 3.3 kB at op 2F0: 3.0 kB "
                                 "static, 36 B of messages, 230 B of activations")));
}

// The activations of the one are there before those of the other are freed.
TEST(MemoryTest, FusedOpsHoldWhatBothHold) {
  const PipelineProfile profile = UniformProfile(1, 1, 0);
  for (const char* text : {"0F0 0F1& 0B0 0F2& 0B1 0B2\n", "0F0 0F1 0B0 0F2 0B1 0B2\n"}) {
    ASSERT_OK_AND_ASSIGN(const Schedule schedule, ParseSchedule(text));
    ASSERT_OK_AND_ASSIGN(const OpTable ops, OpTable::Create(schedule, profile));
    EXPECT_EQ(PeakMemory(ops)[0].activation_bytes, ByteCount(2));
  }
}

// The devices of either end may hold parts of a message that differ in size.
TEST(MemoryTest, EachEndOfAnEdgeHoldsItsOwnBuffers) {
  PipelineProfile profile = UniformProfile(3, 1, 0);
  profile.edges[0].from_buffer_bytes = ByteCount(7);
  profile.edges[0].to_buffer_bytes = ByteCount(100);
  profile.edges[1].from_buffer_bytes = ByteCount(2000);
  const std::vector<RankMemory> memory = FixedMemory(profile);
  EXPECT_EQ(memory[0].buffer_bytes, ByteCount(7));
  EXPECT_EQ(memory[1].buffer_bytes, ByteCount(2100));
  EXPECT_EQ(memory[2].buffer_bytes, ByteCount(0));
}

}  // namespace
}  // namespace crossmesh
