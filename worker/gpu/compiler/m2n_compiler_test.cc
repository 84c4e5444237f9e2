#include "worker/gpu/compiler/m2n_compiler.h"

#include "common/plan/testing/random_source.h"
#include "common/plan/testing/tables.h"
#include "common/testing/status_matchers.h"
#include "planner/reshard/plan_reshard.h"
#include "worker/gpu/compiler/testing/compiled_parts.h"
#include "worker/gpu/compiler/testing/random_compiled_parts.h"

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// A tensor of 128 KiB and 4 bytes, three leaves, from a.0, or as well a.1, to b.0 and b.1.
Plan ToTwoReplicas() {
  ReshardRequest request;
  request.tensors = std::make_shared<const TensorTable>(
      TableOf({TensorOf("[32769]: r=2 on a.0-1 [-] -> r=2 on b.0-1 [-]")}));
  request.strategy = Strategy::kSendRecv;
  auto routes = PlanReshard(request);
  EXPECT_OK(routes);
  Plan::Spec spec = routes->spec();
  spec.m2n = true;
  auto plan = Plan::Create(std::move(spec));
  EXPECT_OK(plan);
  return *std::move(plan);
}

TEST(M2nCompilerTest, AllIsMovedInTheFirstStepAndHashesFollowInTheSecond) {
  ASSERT_OK_AND_ASSIGN(const CompiledParts parts,
                       CompiledPartsOf(ToTwoReplicas(), {.staging_bytes = 1 << 12}));
  ASSERT_THAT(parts, SizeIs(4));
  for (const auto& part : parts) {
    EXPECT_TRUE(part->is_m2n());
    EXPECT_TRUE(part->is_of_group());
    EXPECT_THAT(part->peers(), SizeIs(3));
    EXPECT_TRUE(part->steps().front().m2n);
  }
  const CompiledPart& receiver = *parts[2];
  ASSERT_THAT(receiver.steps(), SizeIs(2));
  EXPECT_THAT(receiver.packs(receiver.steps()[0]), IsEmpty());
  EXPECT_FALSE(receiver.steps()[1].m2n);
  ASSERT_THAT(receiver.receives(receiver.steps()[1]), SizeIs(1));
  EXPECT_EQ(receiver.receives(receiver.steps()[1])[0].bytes, 3 * 8);
  EXPECT_EQ(receiver.leaves(), 3);
  EXPECT_EQ(receiver.straight_received_bytes(), 32769 * 4);
}

TEST(M2nCompilerTest, WithoutChecksumsThereIsOneStep) {
  ASSERT_OK_AND_ASSIGN(const CompiledParts parts,
                       CompiledPartsOf(ToTwoReplicas(), {.staging_bytes = 0, .checksums = false}));
  for (const auto& part : parts) {
    EXPECT_THAT(part->steps(), SizeIs(1));
    EXPECT_THAT(part->senders(), IsEmpty());
    EXPECT_THAT(part->received(), SizeIs(part->device() < 2 ? 0 : 1));
  }
}

TEST(M2nCompilerTest, HashesThatDoNotFitAreRefused) {
  EXPECT_THAT(CompiledPartsOf(ToTwoReplicas(), {.staging_bytes = 255}),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("expected room for the 256 bytes of all hashes, found 255")));
}

// Both ends have the same messages in the same order, and each leaf is hashed once at either.
absl::Status ExpectMessagesMatch(RandomSource& random) {
  const Plan plan = RandomM2n(random);
  absl::StatusOr<CompiledParts> parts = RandomCompiledParts(random, plan);
  if (!parts.ok()) return parts.status();
  std::map<std::pair<DeviceRank, DeviceRank>, std::vector<int64_t>> sent, received;
  for (const auto& part : *parts) {
    int64_t leaf = 0;
    for (const CompiledPart::Step& step : part->steps()) {
      for (const auto& send : part->sends(step)) {
        sent[{part->device(), send.peer}].push_back(send.bytes);
      }
      for (const auto& receive : part->receives(step)) {
        received[{receive.peer, part->device()}].push_back(receive.bytes);
      }
      for (const auto& unpack : part->unpacks(step)) {
        if (unpack.first_leaf != leaf) return absl::InternalError("a gap between leaves");
        leaf += Plan::LeavesOf(unpack.end - unpack.begin);
      }
    }
    if (leaf != part->leaves()) return absl::InternalError("leaves that nothing hashes");
  }
  return sent == received ? absl::OkStatus() : absl::InternalError("messages that do not match");
}

TEST(M2nCompilerTest, MessagesOfRandomPlansMatch) {
  EXPECT_OK(RunRandomCases(1, 300, ExpectMessagesMatch));
}

}  // namespace
}  // namespace crossmesh
