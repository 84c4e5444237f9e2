#include "common/plan/m2n_proof.h"

#include "common/base/check.h"
#include "common/plan/proof.h"
#include "common/plan/testing/proven_parts.h"
#include "common/plan/testing/tables.h"
#include "common/testing/status_matchers.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;

// Ranks: a.0 0, a.1 1, b.0 2, b.1 3. All of the tensor goes from a.0 to b.0 and to b.1.
Plan::Spec SpecOf(const std::string& tensor) {
  auto tensors = std::make_shared<const TensorTable>(TableOf({TensorOf(tensor)}));
  auto slicing = Slicing::Create(*tensors);
  CHECK_OK(slicing);
  Plan::Spec spec{.tensors = std::move(tensors),
                  .slicing = std::make_shared<const Slicing>(*std::move(slicing)),
                  .m2n = true};
  spec.relays = {
      {.slice_class = 0, .root = 0, .begin = 0, .end = 128, .first_hop = 0, .hop_count = 2}};
  spec.hops = {{.from = 0, .to = 2}, {.from = 0, .to = 3}};
  return spec;
}

constexpr char kReplicas[] = "[8, 4]: r=2 on a.0-1 [-, -] -> r=2 on b.0-1 [-, -]";

std::vector<WorkerPart> PartsOf(const Plan& plan) {
  return MakeParts(plan, {{{"a", 0}}, {{"a", 1}}, {{"b", 0}, {"b", 1}}});
}

TEST(M2nProofTest, APlanAndItsPartsAreProvenAndSayIt) {
  const Plan plan = MakePlan(SpecOf(kReplicas));
  EXPECT_OK(Prove(plan));
  EXPECT_THAT(ToText(plan), HasSubstr(", by NCCL M2N\n"));
  for (const WorkerPart& part : PartsOf(plan)) {
    EXPECT_TRUE(part.spec().m2n);
    EXPECT_OK(ProofOf(part));
  }
  ASSERT_OK_AND_ASSIGN(const WorkerPart cut, CutPart(PartsOf(plan)[2], {3}));
  EXPECT_TRUE(cut.spec().m2n);
}

TEST(M2nProofTest, IdsDifferFromThoseOfTheSameRelaysWithoutIt) {
  Plan::Spec without = SpecOf(kReplicas);
  without.m2n = false;
  const Plan plan = MakePlan(SpecOf(kReplicas)), other = MakePlan(std::move(without));
  EXPECT_NE(plan.id(), other.id());
  EXPECT_NE(PartsOf(plan)[0].digest(), PartsOf(other)[0].digest());
}

TEST(M2nProofTest, ARelayThatIsPassedOnIsFound) {
  Plan::Spec spec = SpecOf(kReplicas);
  spec.hops = {{.from = 0, .to = 2}, {.from = 2, .to = 3, .period = 1}};
  const Plan plan = MakePlan(spec);
  const auto passed_on =
      StatusIs(absl::StatusCode::kInternal,
               HasSubstr("relay 0 of a plan for NCCL M2N: expected hops from its root, a.0, found "
                         "one from b.0 to b.1"));
  EXPECT_THAT(Prove(plan), passed_on);
  EXPECT_THAT(ProofOf(PartsOf(plan)[2]), passed_on);
  spec.m2n = false;
  EXPECT_OK(Prove(MakePlan(spec)));
}

TEST(M2nProofTest, ATensorThatItCannotMoveIsFound) {
  Plan::Spec uneven = SpecOf("[7]: r=2 on a.0-1 [-] -> x=2 on b.0-1 [x] chunk");
  uneven.relays = {
      {.slice_class = 0, .root = 0, .begin = 0, .end = 16, .first_hop = 0, .hop_count = 1},
      {.slice_class = 1, .root = 0, .begin = 0, .end = 12, .first_hop = 1, .hop_count = 1}};
  const auto refused =
      StatusIs(absl::StatusCode::kInternal, HasSubstr("by NCCL M2N: destination: expected"));
  EXPECT_THAT(ProveM2n(MakePlan(uneven)), refused);
  EXPECT_THAT(ProveM2n(PartsOf(MakePlan(uneven))[0]), refused);
}

}  // namespace
}  // namespace crossmesh
