#include "worker/gpu/executor/run_agreement.h"

#include "common/testing/status_matchers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr TaskKey kKey = {.operation = 7, .epoch = 2, .plan = 1, .instance = 30};

TEST(RunAgreementTest, RanksOfOneTaskAndCompiledPartAgree) {
  const Digest compiled = Digest::Of("a");
  EXPECT_OK(
      CheckAgreement(RunAgreement::Of(compiled, kKey), RunAgreement::Of(compiled, kKey), "b.0"));
}

TEST(RunAgreementTest, AnotherCompiledPartIsToldOfWithThePeer) {
  const RunAgreement own = RunAgreement::Of(Digest::Of("a"), kKey);
  const RunAgreement other = RunAgreement::Of(Digest::Of("b"), kKey);
  EXPECT_THAT(CheckAgreement(own, other, "b.0"),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("device b.0"), HasSubstr(own.compiled.ToString()),
                             HasSubstr(other.compiled.ToString()))));
}

TEST(RunAgreementTest, EveryPartOfTheKeyCounts) {
  const RunAgreement own = RunAgreement::Of(Digest(), kKey);
  for (uint64_t RunAgreement::* part : {&RunAgreement::operation, &RunAgreement::epoch,
                                        &RunAgreement::attempt, &RunAgreement::instance}) {
    RunAgreement other = own;
    ++(other.*part);
    EXPECT_THAT(CheckAgreement(own, other, "b.0"), StatusIs(absl::StatusCode::kFailedPrecondition));
  }
}

}  // namespace
}  // namespace crossmesh
