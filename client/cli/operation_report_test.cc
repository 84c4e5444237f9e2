#include "client/cli/operation_report.h"

#include "crossmesh/v1/operation_service.pb.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

v1::Operation Ended(v1::OperationState state, int64_t committed_bytes) {
  v1::Operation operation;
  operation.set_id("op-1");
  operation.set_state(state);
  operation.set_moved_bytes(195'500'000);
  operation.set_total_bytes(243'600'000);
  operation.mutable_report()->set_destination_bytes(committed_bytes);
  operation.mutable_report()->set_bound_seconds(7.92);
  if (committed_bytes > 0) operation.mutable_report()->set_transfer_seconds(15.84);
  return operation;
}

TEST(OperationReportTest, WhatCameToNothingIsNotHeldToTheBound) {
  EXPECT_THAT(OperationText(Ended(v1::OPERATION_STATE_FAILED, 0)),
              AllOf(HasSubstr("195.5 MB of 243.6 MB, none of it committed"), HasSubstr("7.92 s"),
                    Not(HasSubstr("it took"))));
}

TEST(OperationReportTest, WhatIsCommittedIsHeldToTheBound) {
  EXPECT_THAT(OperationText(Ended(v1::OPERATION_STATE_COMMITTED, 243'600'000)),
              AllOf(HasSubstr("243.6 MB in 15.84 s"), HasSubstr("it took 2.00x")));
}

TEST(OperationReportTest, HowItWasPlannedIsSaidWithTheOrderOfSums) {
  v1::Operation operation = Ended(v1::OPERATION_STATE_COMMITTED, 243'600'000);
  EXPECT_THAT(OperationText(operation), Not(HasSubstr("search")));
  operation.mutable_report()->set_search("1 tensor in 2 steps, summands in NCCL's order");
  EXPECT_THAT(OperationText(operation),
              HasSubstr("search        1 tensor in 2 steps, summands in NCCL's order\n"));
}

TEST(OperationReportTest, ASourceThatWasBeingReleasedIsNamedUnlessItIsGone) {
  const auto text_of = [](v1::OperationState state) {
    v1::Operation operation = Ended(state, 0);
    operation.mutable_reshard()->mutable_source()->set_storage("weights");
    operation.mutable_reshard()->mutable_redistribution()->set_release_source(true);
    operation.mutable_report()->add_workers()->add_released_sources("a.1");
    return OperationText(operation);
  };
  EXPECT_THAT(text_of(v1::OPERATION_STATE_FAILED),
              AllOf(HasSubstr("DIRTY"), HasSubstr("storage \"weights\" of device a.1")));
  EXPECT_THAT(text_of(v1::OPERATION_STATE_COMMITTED),
              AllOf(Not(HasSubstr("DIRTY")), HasSubstr("redistribute, attempt")));
}

}  // namespace
}  // namespace crossmesh
