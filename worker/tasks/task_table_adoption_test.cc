// Tasks that a controller takes over from a former one.

#include "common/testing/status_matchers.h"
#include "worker/tasks/testing/task_fixture.h"

#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Optional;

// A task that a controller of epoch 5 has started and left, and its successor, of epoch 6.
class AdoptionTest : public TaskFixture {
 protected:
  AdoptionTest() : first_(Start(Key(1, 5))) {}

  std::unique_ptr<FakeExecuteCall> Adopt(const TaskKey& key, uint64_t by_epoch = 6) {
    return AdoptPart(key, part_digest_, by_epoch);
  }
  std::unique_ptr<FakeExecuteCall> AdoptPart(const TaskKey& key, const Digest& part,
                                             uint64_t by_epoch) {
    auto call = std::make_unique<FakeExecuteCall>(table_);
    v1::ExecuteRequest request;
    v1::ExecuteRequest::Adopt& adopt = *request.mutable_adopt();
    adopt.set_operation(key.operation);
    adopt.set_epoch(key.epoch);
    adopt.set_attempt(key.plan);
    adopt.set_part_digest(part.ToString());
    adopt.set_by_epoch(by_epoch);
    adopt.set_operation_id("op-1");
    Send(*call, request);
    return call;
  }

  std::unique_ptr<FakeExecuteCall> first_;
};

TEST_F(AdoptionTest, SaysAllAgainAndIsResolvedByTheNewController) {
  first_->call.OnGone();
  const auto adopted = Adopt(Key(1, 5));
  EXPECT_THAT(adopted->caller->said, ElementsAre("accepted"));
  Finish(Key(1, 5));
  EXPECT_THAT(adopted->caller->said,
              ElementsAre("accepted", "done 2 OK", "done 3 OK", "report OK"));
  Send(*adopted, ResolveOf({2, 3}, true));
  EXPECT_EQ(adopted->caller->said.back(), "resolved 2,3 OK");
  EXPECT_EQ(StatusOf("new", "b.0").generation, 2);
  EXPECT_THAT(Rejections(), IsEmpty());
}

TEST_F(AdoptionTest, EndsTheCallOfTheFormerControllerWhichIsNotObeyedAgain) {
  const auto adopted = Adopt(Key(1, 5));
  EXPECT_THAT(first_->caller->end, Optional(StatusIs(absl::StatusCode::kAborted)));
  EXPECT_THAT(Start(Key(1, 5))->caller->end,
              Optional(StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("epoch"))));
  EXPECT_FALSE(adopted->caller->end.has_value());
}

TEST_F(AdoptionTest, FinishesACommitThatTheFormerControllerHadBegun) {
  Finish(Key(1, 5));
  Send(*first_, ResolveOf({2}, true));
  const auto adopted = Adopt(Key(1, 5));
  Send(*adopted, ResolveOf({2, 3}, true));
  EXPECT_EQ(adopted->caller->said.back(), "resolved 2,3 OK");
  EXPECT_EQ(StatusOf("new", "b.0").generation, 2);
  EXPECT_EQ(StatusOf("new", "b.1").generation, 2);
}

TEST_F(AdoptionTest, DoesNotTakeForWholeWhatTheFormerControllerHasAbandoned) {
  Finish(Key(1, 5));
  Send(*first_, ResolveOf({3}, false));
  const auto adopted = Adopt(Key(1, 5));
  EXPECT_THAT(adopted->caller->said,
              ElementsAre("accepted", "done 2 OK", "done 3 ABORTED", "report OK", "resolved 3 OK"));
}

TEST_F(AdoptionTest, OfWhatIsNotThereIsNotFoundAndTheFormerControllerStartsItNoMore) {
  EXPECT_THAT(
      Adopt(Key(2, 5))->caller->end,
      Optional(StatusIs(absl::StatusCode::kNotFound, HasSubstr("expected a task of op-1"))));
  EXPECT_THAT(Start(Key(2, 5))->caller->end,
              Optional(StatusIs(absl::StatusCode::kFailedPrecondition)));
}

TEST_F(AdoptionTest, OfAnotherPartIsRefused) {
  EXPECT_THAT(AdoptPart(Key(1, 5), Digest::Of("another"), 6)->caller->end,
              Optional(StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("found part"))));
  EXPECT_FALSE(first_->caller->end.has_value());
}

TEST_F(AdoptionTest, ByAControllerThatWasReplacedIsRefused) {
  Adopt(Key(1, 5), 7);
  EXPECT_THAT(Adopt(Key(1, 5), 6)->caller->end,
              Optional(StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("7"))));
}

TEST_F(AdoptionTest, KeepsDestinationsFromOthersOfTheSameController) {
  Finish(Key(1, 5));
  const auto adopted = Adopt(Key(1, 5));
  EXPECT_THAT(Start(Key(2, 6))->caller->end, Optional(StatusIs(absl::StatusCode::kAborted)));
  Send(*adopted, ResolveOf({2, 3}, true));
  EXPECT_EQ(adopted->caller->said.back(), "resolved 2,3 OK");
}

TEST_F(AdoptionTest, IsGivenUpWhenTheOperationHasEndedThere) {
  first_->call.OnGone();
  Adopt(Key(1, 5))->call.OnGone();
  EXPECT_THAT(table_.HeldOperations(5), IsEmpty()) << "it is no former controller's any more";
  EXPECT_THAT(table_.HeldOperations(6), ElementsAre("op-1"));
  Finish(Key(1, 5));
  table_.GiveUp({{"op-1"}}, 6);
  EXPECT_EQ(table_.size(), 0);
}

TEST_F(AdoptionTest, ComesFirstInACall) {
  FakeExecuteCall call(table_);
  Send(call, StartOf(Key(1, 5)));
  v1::ExecuteRequest adopt;
  adopt.mutable_adopt()->set_part_digest(part_digest_.ToString());
  Send(call, adopt);
  EXPECT_THAT(call.caller->end, Optional(StatusIs(absl::StatusCode::kInvalidArgument)));
}

TEST_F(AdoptionTest, IsCheckedFieldByField) {
  FakeExecuteCall call(table_);
  v1::ExecuteRequest adopt;
  adopt.mutable_adopt()->set_part_digest("none");
  Send(call, adopt);
  EXPECT_THAT(call.caller->end, Optional(StatusIs(absl::StatusCode::kInvalidArgument,
                                                  HasSubstr("adopt.part_digest"))));
}

}  // namespace
}  // namespace crossmesh
