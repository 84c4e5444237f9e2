#include "worker/gpu/executor/execution_agreement.h"

#include "common/testing/status_matchers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr TaskKey kKey = {.operation = 7, .epoch = 2, .plan = 1, .instance = 30};

TEST(ExecutionAgreementTest, RanksOfOneTaskAndCompiledPartAgree) {
  const Digest compiled = Digest::Of("a");
  EXPECT_OK(CheckAgreement(ExecutionAgreement::Of(compiled, kKey),
                           ExecutionAgreement::Of(compiled, kKey), "b.0"));
}

TEST(ExecutionAgreementTest, AnotherCompiledPartIsToldOfWithThePeer) {
  const ExecutionAgreement own = ExecutionAgreement::Of(Digest::Of("a"), kKey);
  const ExecutionAgreement other = ExecutionAgreement::Of(Digest::Of("b"), kKey);
  EXPECT_THAT(CheckAgreement(own, other, "b.0"),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("device b.0"), HasSubstr(own.compiled.ToString()),
                             HasSubstr(other.compiled.ToString()))));
}

TEST(ExecutionAgreementTest, EveryPartOfTheKeyCounts) {
  const ExecutionAgreement own = ExecutionAgreement::Of(Digest(), kKey);
  for (uint64_t ExecutionAgreement::* part :
       {&ExecutionAgreement::operation, &ExecutionAgreement::epoch, &ExecutionAgreement::plan,
        &ExecutionAgreement::instance}) {
    ExecutionAgreement other = own;
    ++(other.*part);
    EXPECT_THAT(CheckAgreement(own, other, "b.0"), StatusIs(absl::StatusCode::kFailedPrecondition));
  }
}

}  // namespace
}  // namespace crossmesh
