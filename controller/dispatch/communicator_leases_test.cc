#include "controller/dispatch/communicator_leases.h"

#include "common/metrics/metric_names.h"
#include "common/metrics/testing/metric_value.h"
#include "common/testing/status_matchers.h"
#include "controller/dispatch/testing/dispatch_fixture.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class CommunicatorLeasesTest : public DispatchFixture {
 protected:
  CommunicatorLeasesTest() {
    for (const char* host : {"a", "b", "c"}) JoinGpu(host, 1);
  }

  // The worker's session ends, and it is back with the same process.
  void Blip(const std::string& host) {
    EndSession(host);
    JoinGpu(host, 1);
  }

  static CommunicatorKey Key(const std::vector<RankName>& ranks) {
    return {.ranks = ranks, .purpose = "relay", .epoch = 7};
  }
  // The GPUs of these hosts, with their first processes.
  static CommunicatorKey Of(const std::vector<std::string>& hosts) {
    std::vector<RankName> ranks;
    for (const std::string& host : hosts) ranks.push_back({absl::StrCat("GPU-", host), 1});
    return Key(ranks);
  }

  void Want(const std::string& user, const CommunicatorKey& key) { WantAll(user, {key}); }
  void WantAll(const std::string& user, const std::vector<CommunicatorKey>& keys) {
    communicators_.Want(user, keys, [this, user](const absl::Status& status) {
      EXPECT_FALSE(answers_.contains(user)) << user << " was answered twice";
      answers_[user] = status;
    });
    EXPECT_FALSE(answers_.contains(user)) << "answered from inside";
    queue_.Run();
  }
  void Release(const std::string& user) {
    communicators_.Release(user);
    queue_.Run();
  }
  void Break(const std::string& user, const RankName& rank) {
    communicators_.Broken(user, rank, absl::UnavailableError("an asynchronous error"));
    queue_.Run();
  }
  void AnswerOldest() {
    gateway_.AnswerOldest();
    queue_.Run();
  }
  bool IsWaiting(const std::string& user) const { return !answers_.contains(user); }
  std::vector<std::string> Heard(const std::string& order) const { return gateway_.Heard(order); }

  // How many are in this state, by its label.
  double Communicators(absl::string_view state) const {
    return ValueOf(metrics_.metrics(), metric::kCommunicators, state);
  }

  FakeCommunicatorGateway& gateway_ = communicator_gateway_;
  std::map<std::string, absl::Status> answers_;
};

TEST_F(CommunicatorLeasesTest, ACommunicatorIsMadeOnceForAllOfItsUsers) {
  Want("op1", Of({"a", "b"}));
  EXPECT_THAT(gateway_.heard, ElementsAre("at-a preflight relay@7[GPU-a#1,GPU-b#1]",
                                          "at-b preflight relay@7[GPU-a#1,GPU-b#1]",
                                          "at-a mint relay@7[GPU-a#1,GPU-b#1]",
                                          "at-a create relay@7[GPU-a#1,GPU-b#1] ticket 1",
                                          "at-b create relay@7[GPU-a#1,GPU-b#1] ticket 1"));
  EXPECT_OK(answers_.at("op1"));
  Release("op1");
  Want("op2", Of({"a", "b"}));
  EXPECT_OK(answers_.at("op2"));
  EXPECT_THAT(gateway_.heard, SizeIs(5));
  EXPECT_EQ(queue_.timers(), 0);
}

TEST_F(CommunicatorLeasesTest, AGpuHasOneUserAtATime) {
  Want("op1", Of({"a", "b"}));
  Want("op2", Of({"a", "b"}));
  Want("op3", Of({"b", "c"}));
  EXPECT_TRUE(IsWaiting("op2"));
  EXPECT_TRUE(IsWaiting("op3"));
  Release("op1");
  EXPECT_OK(answers_.at("op2"));
  EXPECT_TRUE(IsWaiting("op3"));
  Release("op2");
  EXPECT_OK(answers_.at("op3"));
}

TEST_F(CommunicatorLeasesTest, AUserGetsAllOfItsCommunicatorsTogether) {
  Want("op1", Of({"c"}));
  WantAll("op2", {Of({"a", "b"}), Of({"c"})});
  EXPECT_TRUE(IsWaiting("op2"));
  EXPECT_THAT(Heard("create"), SizeIs(1));
  Want("op3", Of({"a"}));  // after op2, which it could keep waiting
  EXPECT_TRUE(IsWaiting("op3"));
  Release("op1");
  EXPECT_OK(answers_.at("op2"));
  EXPECT_THAT(Heard("create"), SizeIs(3));
  Release("op2");
  EXPECT_OK(answers_.at("op3"));
}

TEST_F(CommunicatorLeasesTest, AUserGetsAllOfItsCommunicatorsOrNone) {
  gateway_.Refuse("at-c", "create", absl::InternalError("broken"));
  WantAll("op1", {Of({"a", "b"}), Of({"c"})});
  EXPECT_THAT(answers_.at("op1"), StatusIs(absl::StatusCode::kInternal, HasSubstr("GPU-c#1")));
  Want("op2", Of({"a", "b"}));
  EXPECT_OK(answers_.at("op2"));
  EXPECT_THAT(Heard("create"), SizeIs(3));  // op2 has what was made for op1
}

TEST_F(CommunicatorLeasesTest, OnlyTheCommunicatorThatIsBrokenEnds) {
  WantAll("op1", {Of({"a", "b"}), Of({"c"})});
  Break("op1", {"GPU-b", 1});
  EXPECT_THAT(Heard("stop"), SizeIs(2));
  Break("op1", {"GPU-a", 1});
  EXPECT_THAT(Heard("stop"), SizeIs(2));
  Release("op1");
  Want("op2", Of({"c"}));
  EXPECT_OK(answers_.at("op2"));
  EXPECT_THAT(Heard("create"), SizeIs(3));
}

TEST_F(CommunicatorLeasesTest, AUserThatIsRefusedKeepsNoOtherWaiting) {
  gateway_.Refuse("at-b", "create", absl::InternalError("broken"));
  Want("op1", Of({"a", "b"}));
  Want("op2", Of({"a"}));
  EXPECT_FALSE(answers_.at("op1").ok());
  EXPECT_OK(answers_.at("op2"));
}

TEST_F(CommunicatorLeasesTest, GroupsShareTheMemoryOfAGpuAndTheOldestMakesRoom) {
  for (const auto& [user, key] : {std::pair("op1", Of({"a", "c"})), {"op2", Of({"a", "b"})}}) {
    Want(user, key);
    Release(user);
  }
  Want("op3", Of({"a", "b", "c"}));
  EXPECT_OK(answers_.at("op3"));
  EXPECT_THAT(Heard("destroy"), ElementsAre("at-a destroy relay@7[GPU-a#1,GPU-c#1] ticket 3",
                                            "at-c destroy relay@7[GPU-a#1,GPU-c#1] ticket 3"));
  EXPECT_EQ(Communicators("ready"), 2);
}

TEST_F(CommunicatorLeasesTest, RanksThatDoNotFitTogetherAreToldApart) {
  gateway_.SetVersion("at-b", 22907);
  Want("op1", Of({"a", "b"}));
  EXPECT_THAT(answers_.at("op1"),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("GPU-a#1 has 23007"), HasSubstr("GPU-b#1 has 22907"))));
  EXPECT_THAT(Heard("mint"), IsEmpty());
  EXPECT_EQ(queue_.timers(), 0);
}

TEST_F(CommunicatorLeasesTest, AProcessOfNoWorkerIsNamed) {
  Want("op1", Key({{"GPU-a", 1}, {"GPU-x", 1}}));
  EXPECT_THAT(answers_.at("op1"),
              StatusIs(absl::StatusCode::kUnavailable, "rank GPU-x#1: it is on no live worker"));
}

TEST_F(CommunicatorLeasesTest, ACreationThatFailsNamesRankAndWorkerAndIsStoppedEverywhere) {
  gateway_.Refuse("at-b", "create", absl::InternalError("unhandled system error"));
  Want("op1", Of({"a", "b"}));
  EXPECT_THAT(answers_.at("op1"), StatusIs(absl::StatusCode::kInternal,
                                           "rank GPU-b#1: worker w-b: unhandled system error"));
  EXPECT_THAT(Heard("stop"), ElementsAre(HasSubstr("at-a stop"), HasSubstr("at-b stop")));
  gateway_.Allow();
  Want("op2", Of({"a", "b"}));
  EXPECT_OK(answers_.at("op2"));
}

TEST_F(CommunicatorLeasesTest, ACreationThatHangsAtOneRankEndsInTimeAndTheNextWorks) {
  gateway_.Hold("at-b", "create");
  Want("op1", Of({"a", "b"}));
  Want("op2", Of({"a", "c"}));
  Advance(absl::Seconds(59));
  EXPECT_TRUE(IsWaiting("op1"));
  Advance(absl::Seconds(1));
  EXPECT_THAT(answers_.at("op1"),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       "rank GPU-b#1: worker w-b: expected an answer within 1m"));
  EXPECT_OK(answers_.at("op2"));
  EXPECT_EQ(Heard("create").back(), "at-c create relay@7[GPU-a#1,GPU-c#1] ticket 2");
}

TEST_F(CommunicatorLeasesTest, AStopIsRepeatedUntilTheWorkerHasAnsweredIt) {
  gateway_.Refuse("at-b", "create", absl::InternalError("broken"));
  gateway_.Refuse("at-b", "stop", absl::UnavailableError("connection refused"));
  Want("op1", Of({"a", "b"}));
  Want("op2", Of({"a", "b"}));
  EXPECT_TRUE(IsWaiting("op2"));
  Advance(CommunicatorLeases::kStopPause);
  EXPECT_TRUE(IsWaiting("op2"));
  gateway_.Allow();
  Advance(CommunicatorLeases::kStopPause);
  EXPECT_OK(answers_.at("op2"));
  EXPECT_THAT(Heard("stop"), SizeIs(4));  // three of them at b
}

TEST_F(CommunicatorLeasesTest, AStopIsNotRepeatedForAProcessThatIsLost) {
  gateway_.Refuse("at-b", "create", absl::InternalError("broken"));
  gateway_.Refuse("at-b", "stop", absl::UnavailableError("connection refused"));
  Want("op1", Of({"a", "b"}));
  EndSession("b");
  Advance(CommunicatorLeases::kStopPause);
  EXPECT_THAT(Heard("stop"), SizeIs(2));
  EXPECT_EQ(queue_.timers(), 0);
  Want("op2", Of({"a", "c"}));
  EXPECT_OK(answers_.at("op2"));
}

TEST_F(CommunicatorLeasesTest, WhatIsGoneAlreadyNeedsNoOtherStop) {
  gateway_.Refuse("at-b", "create", absl::InternalError("broken"));
  gateway_.Refuse("at-b", "stop", absl::NotFoundError("it is not here"));
  gateway_.Refuse("at-a", "stop", absl::AbortedError("epoch 8 has begun"));
  Want("op1", Of({"a", "b"}));
  EXPECT_EQ(Communicators("ending"), 0);
}

TEST_F(CommunicatorLeasesTest, WhatComesAfterTheStopIsNoAnswerToTheNextOrder) {
  gateway_.Hold("at-a", "create");
  gateway_.Refuse("at-b", "create", absl::InternalError("broken"));
  Want("op1", Of({"a", "b"}));
  gateway_.Allow();
  gateway_.Hold("at-b", "create");
  Want("op2", Of({"a", "b"}));
  ASSERT_THAT(Heard("create"), SizeIs(4));
  gateway_.Refuse("at-a", "create", absl::InternalError("it was stopped"));
  AnswerOldest();
  EXPECT_TRUE(IsWaiting("op2"));
  AnswerOldest();
  EXPECT_OK(answers_.at("op2"));
}

TEST_F(CommunicatorLeasesTest, AProcessLostWhileItIsMadeRefusesIt) {
  gateway_.Hold("at-b", "create");
  Want("op1", Of({"a", "b"}));
  EndSession("b");
  EXPECT_THAT(answers_.at("op1"), StatusIs(absl::StatusCode::kUnavailable,
                                           "rank GPU-b#1: worker w-b is lost: its session ended"));
  EXPECT_THAT(Heard("stop"), ElementsAre(HasSubstr("at-a stop")));
  EXPECT_EQ(queue_.timers(), 0);
}

TEST_F(CommunicatorLeasesTest, AProcessThatIsReplacedTakesItsCommunicatorsAlong) {
  Want("op1", Of({"a", "b"}));
  JoinGpu("b", 2);
  EXPECT_THAT(Heard("stop"), ElementsAre(HasSubstr("at-a stop")));
  Release("op1");
  Want("op2", Key({{"GPU-a", 1}, {"GPU-b", 2}}));
  EXPECT_OK(answers_.at("op2"));
}

TEST_F(CommunicatorLeasesTest, AProcessThatIsBackStopsWhatItHadBeforeTheNextIsMade) {
  Want("op1", Of({"a", "b"}));
  Release("op1");
  Blip("b");
  EXPECT_THAT(Heard("stop"), ElementsAre(HasSubstr("at-a stop")));
  gateway_.Hold("at-b", "stop");
  Want("op2", Of({"b", "c"}));
  EXPECT_THAT(Heard("stop"), ElementsAre(HasSubstr("at-a"),
                                         "at-b stop relay@7[GPU-a#1,GPU-b#1] "
                                         "its process was lost, and is back"));
  EXPECT_THAT(Heard("preflight"), SizeIs(2));
  EXPECT_TRUE(IsWaiting("op2"));
  AnswerOldest();
  EXPECT_OK(answers_.at("op2"));
  Release("op2");
  Want("op3", Of({"a", "b"}));
  EXPECT_OK(answers_.at("op3"));
  EXPECT_THAT(Heard("stop"), SizeIs(2));
}

TEST_F(CommunicatorLeasesTest, WhatAProcessHadIsStoppedAsOftenAsItIsBack) {
  Want("op1", Of({"a", "b"}));
  Release("op1");
  Blip("b");
  gateway_.Hold("at-b", "stop");
  Want("op2", Of({"b"}));
  Blip("b");
  EXPECT_THAT(answers_.at("op2"), StatusIs(absl::StatusCode::kUnavailable,
                                           "rank GPU-b#1: worker w-b is lost: its session ended"));
  Want("op3", Of({"b"}));
  EXPECT_THAT(Heard("stop"), SizeIs(3));
  AnswerOldest();  // the first order, which is of no interest any more
  EXPECT_TRUE(IsWaiting("op3"));
  AnswerOldest();
  EXPECT_OK(answers_.at("op3"));
}

TEST_F(CommunicatorLeasesTest, WhatAProcessHadThatIsNotBackKeepsNoUserWaiting) {
  Want("op1", Of({"a", "b"}));
  Release("op1");
  EndSession("b");
  Want("op2", Of({"b"}));
  EXPECT_THAT(answers_.at("op2"),
              StatusIs(absl::StatusCode::kUnavailable, "rank GPU-b#1: it is on no live worker"));
  Want("op3", Of({"a"}));
  EXPECT_OK(answers_.at("op3"));
  EXPECT_EQ(queue_.timers(), 0);
}

TEST_F(CommunicatorLeasesTest, WhatAUserFindsBrokenIsStoppedOnceAndMadeAnew) {
  Want("op1", Of({"a", "b"}));
  Break("op1", {"GPU-b", 1});
  EXPECT_THAT(Heard("stop"), ElementsAre(HasSubstr("at-a stop"), HasSubstr("at-b stop")));
  Want("op2", Of({"a", "b"}));
  Break("op1", {"GPU-a", 1});
  Release("op1");
  Break("op1", {"GPU-a", 1});
  EXPECT_OK(answers_.at("op2"));
  EXPECT_THAT(Heard("stop"), SizeIs(2));
  EXPECT_THAT(Heard("create"), SizeIs(4));
}

TEST_F(CommunicatorLeasesTest, WhoWaitsNoLongerIsNotAnswered) {
  gateway_.Hold("at-b", "create");
  Want("op1", Of({"a", "b"}));
  Release("op1");
  AnswerOldest();
  EXPECT_TRUE(IsWaiting("op1"));
  EXPECT_EQ(Communicators("ready"), 1);
}

TEST_F(CommunicatorLeasesTest, AWorkerThatDoesNotReportIsNamed) {
  gateway_.Hold("at-c", "preflight");
  Want("op1", Of({"a", "c"}));
  Advance(CommunicatorLeases::kAnswerLimit);
  EXPECT_THAT(answers_.at("op1"),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("rank GPU-c#1: worker w-c")));
}

TEST_F(CommunicatorLeasesTest, TheTimeToMakeOneIsMeasured) {
  gateway_.Hold("at-b", "create");
  Want("op1", Of({"a", "b"}));
  EXPECT_EQ(Communicators("making"), 1);
  Advance(absl::Seconds(3));
  AnswerOldest();
  EXPECT_OK(answers_.at("op1"));
  EXPECT_EQ(ValueOf(metrics_.metrics(), metric::kCommunicatorSeconds), 3);
  EXPECT_EQ(Communicators("making"), 0);
  EXPECT_EQ(Communicators("ready"), 1);
}

}  // namespace
}  // namespace crossmesh
