// Operations that a controller takes up where a former one has left them.

#include "common/testing/status_matchers.h"
#include "controller/dispatch/operation_resumption.h"
#include "controller/dispatch/running_operation.h"
#include "controller/dispatch/testing/running_operation_fixture.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// The former controller is the fixture's, of epoch 7; what it does once it is left is not heard.
class ResumptionTest : public RunningOperationTest {
 protected:
  // What the store has of it.
  OperationRequest Left(const std::string& id) {
    OperationRequest request{.shown = sink_.latest.at(id)};
    absl::StatusOr<stored::v1::OperationResumption> resumption =
        ParseResumption(request.shown, sink_.resumptions.at(id));
    CHECK_OK(resumption);
    request.resumption = *std::move(resumption);
    return request;
  }
  // The workers' devices that receive, before anybody takes anything up.
  void RememberDestinations() {
    for (const std::string& host : Hosts()) destinations_[host] = At(host).Destinations();
  }
  void TakeUp(const std::string& id) {
    RememberDestinations();
    OperationRequest request = Left(id);
    next_sink_.latest[id] = request.shown;
    ASSERT_OK(next_.Start(std::move(request)));
    Run();
    for (const auto& [host, devices] : destinations_) At(host).adopted_to = devices;
  }
  const v1::Operation& Seen(const std::string& id) { return next_sink_.latest.at(id); }
  void Refuse(const std::string& host, const absl::Status& status) {
    At(host).End(status);
    Run();
  }

  FakeSink<v1::Operation> next_sink_;
  std::map<std::string, std::vector<DeviceRank>> destinations_;
  RunningTable<RunningOperation> next_{{.gateway = gateway_,
                                        .communicators = communicators_,
                                        .workers = registry_,
                                        .queue = queue_,
                                        .planners = planners_,
                                        .gate = gate_,
                                        .clock = clock_,
                                        .sink = next_sink_,
                                        .metrics = metrics_,
                                        .epoch = 8}};
};

TEST_F(ResumptionTest, ItsTasksAreAdoptedAndItCommits) {
  Start(Request("op-1"));
  AcceptAll();
  const std::vector<std::string> hosts = Hosts();
  const std::string part = At("c").part().digest().ToString();
  TakeUp("op-1");
  EXPECT_EQ(planned_, 1) << "nothing is planned again";
  EXPECT_EQ(At("c").adopt.epoch(), 7);
  EXPECT_EQ(At("c").adopt.by_epoch(), 8);
  EXPECT_EQ(At("c").adopt.attempt(), 1);
  EXPECT_EQ(At("c").adopt.part_digest(), part);
  EXPECT_EQ(At("c").adopt.operation_id(), "op-1");
  for (const std::string& host : hosts) At(host).Accept();
  for (const std::string& host : hosts) Succeed(host);
  EXPECT_EQ(Seen("op-1").state(), v1::OPERATION_STATE_VERIFYING);
  ResolveAll();
  const v1::Operation& last = Seen("op-1");
  EXPECT_EQ(last.state(), v1::OPERATION_STATE_COMMITTED);
  EXPECT_EQ(last.report().destination_bytes(), 2 * 16 * 4 * 4);
  EXPECT_EQ(last.report().network_bytes(), 2 * 16 * 4 * 4);
  EXPECT_GT(last.report().bound_seconds(), 0);
  EXPECT_EQ(last.plan_id().size(), 32);
  EXPECT_EQ(last.replicas(0).devices(), "c.0");
  for (const std::string& host : hosts) EXPECT_EQ(At(host).heard.back(), "ack") << host;
  EXPECT_EQ(next_.running(), 0);
}

TEST_F(ResumptionTest, ACommitThatHadBegunIsFinished) {
  Start(Request("op-1"));
  AcceptAll();
  for (const std::string& host : Hosts()) Succeed(host);
  Resolve("c");
  TakeUp("op-1");
  for (const auto& [host, devices] : destinations_) {
    At(host).Accept();
    Succeed(host);
  }
  Resolve("c");  // as it had said before
  EXPECT_THAT(At("d").heard, ElementsAre(HasSubstr("commit")));
  ResolveAll();
  EXPECT_EQ(Seen("op-1").state(), v1::OPERATION_STATE_COMMITTED);
}

TEST_F(ResumptionTest, ATaskThatWasNeverStartedFailsItsReplica) {
  Start(Request("op-1"));
  TakeUp("op-1");
  for (const auto& [host, devices] : destinations_) {
    if (host != "d") At(host).Accept();
  }
  Refuse("d", absl::NotFoundError("expected a task to adopt, found none"));
  for (const auto& [host, devices] : destinations_) {
    if (host != "d") Succeed(host);
  }
  Resolve("c");
  EXPECT_EQ(Seen("op-1").state(), v1::OPERATION_STATE_PARTIAL);
  EXPECT_THAT(Seen("op-1").replicas(1).error(),
              HasSubstr("worker w-d: expected a task to take up, found none"));
  EXPECT_THAT(ErrorOf(Seen("op-1")), StatusIs(absl::StatusCode::kUnavailable));
}

TEST_F(ResumptionTest, WorkersOfTheReleaseBeforeFailItWithTheReason) {
  Start(Request("op-1"));
  TakeUp("op-1");
  for (const auto& [host, devices] : destinations_) {
    Refuse(host, absl::InvalidArgumentError("execute: expected start, found message 0"));
  }
  EXPECT_THAT(ErrorOf(Seen("op-1")), StatusIs(absl::StatusCode::kFailedPrecondition,
                                              HasSubstr("found one of an older release")));
}

TEST_F(ResumptionTest, WhereNoTaskWasStartedItMayBeAskedForAgain) {
  Start(Request("op-1"));
  TakeUp("op-1");
  for (const auto& [host, devices] : destinations_) {
    Refuse(host, absl::NotFoundError("expected a task to adopt, found none"));
  }
  EXPECT_EQ(Seen("op-1").state(), v1::OPERATION_STATE_FAILED);
  EXPECT_THAT(ErrorOf(Seen("op-1")),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("ask again")));
  for (const v1::Replica& replica : Seen("op-1").replicas()) {
    EXPECT_THAT(replica.error(), HasSubstr("ask again"));
  }
}

// Another refusal than that there is none: asking again would not help.
TEST_F(ResumptionTest, AnotherPartThanWasStartedIsNotAskedForAgain) {
  Start(Request("op-1"));
  TakeUp("op-1");
  for (const auto& [host, devices] : destinations_) {
    Refuse(host, absl::FailedPreconditionError("expected part 1 to adopt, found part 2"));
  }
  EXPECT_THAT(ErrorOf(Seen("op-1")), StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(ResumptionTest, AWorkerThatDoesNotAnswerInTimeIsLost) {
  Start(Request("op-1"));
  AcceptAll();
  TakeUp("op-1");
  for (const auto& [host, devices] : destinations_) {
    if (host == "d") continue;
    At(host).Accept();
    Succeed(host);
  }
  Resolve("c");
  EXPECT_FALSE(Seen("op-1").has_end_time());
  Advance(RunningOperation::kAdoptLimit);
  EXPECT_EQ(Seen("op-1").state(), v1::OPERATION_STATE_PARTIAL);
  EXPECT_THAT(Seen("op-1").replicas(1).error(), HasSubstr("no word within 10s"));
}

TEST_F(ResumptionTest, WhatIsMissingIsNotPlannedAgain) {
  Start(Request("op-1"));
  AcceptAll();
  TakeUp("op-1");
  for (const auto& [host, devices] : destinations_) At(host).Accept();
  Run();
  FailAsUnavailable("c", "a");
  FailAsUnavailable("d", "a");
  for (const auto& [host, devices] : destinations_) {
    if (host != "c" && host != "d") Succeed(host);
  }
  for (const char* host : {"c", "d"}) {
    EXPECT_THAT(At(host).heard.back(), HasSubstr("abandon"));
    Resolve(host);
  }
  EXPECT_EQ(Seen("op-1").state(), v1::OPERATION_STATE_FAILED);
  EXPECT_THAT(Seen("op-1").replicas(0).error(), HasSubstr("is not planned again"));
  EXPECT_EQ(planned_, 1);
}

TEST_F(ResumptionTest, ASecondAttemptIsTakenUpAndTheFirstIsAcknowledged) {
  Start(Request("op-1"));
  AcceptAll();
  // The source that the first attempt took is lost for the former controller.
  const std::string lost = Called("a") ? "a" : "b";
  const std::vector<std::string> first = Hosts();
  LoseWorker(lost);
  for (const std::string& host : first) {
    if (host == "c" || host == "d") {
      FailAsUnavailable(host, lost);
    } else if (host != lost) {
      Succeed(host);
    }
  }
  ResolveAll();
  ASSERT_EQ(Latest("op-1").attempt(), 2);
  EXPECT_EQ(sink_.intents, 2);
  const size_t calls = gateway_.calls.size();
  TakeUp("op-1");
  std::vector<FakeTaskCall*> earlier;
  for (size_t i = calls; i < gateway_.calls.size(); ++i) {
    if (gateway_.calls[i]->adopt.attempt() == 1) earlier.push_back(gateway_.calls[i].get());
  }
  EXPECT_EQ(earlier.size(), first.size());
  for (FakeTaskCall* call : earlier) {
    call->Accept();
    call->Report(absl::UnavailableError("the root is gone"));
  }
  Run();
  EXPECT_EQ(At("d").adopt.attempt(), 2);
  for (const auto& [host, devices] : destinations_) At(host).Accept();
  Run();
  for (const auto& [host, devices] : destinations_) Succeed(host);
  ResolveAll();
  EXPECT_EQ(Seen("op-1").state(), v1::OPERATION_STATE_COMMITTED);
  EXPECT_EQ(Seen("op-1").report().destination_bytes(), 2 * 16 * 4 * 4);
  for (FakeTaskCall* call : earlier) EXPECT_EQ(call->heard.back(), "ack") << call->address;
}

TEST_F(ResumptionTest, WhatWasNotPlannedFailsAndSaysSo) {
  OperationRequest request{.shown = Request("op-1").shown};
  next_sink_.latest["op-1"] = request.shown;
  request.resumption = *ParseResumption(request.shown, "");
  ASSERT_OK(next_.Start(std::move(request)));
  Run();
  EXPECT_EQ(Seen("op-1").state(), v1::OPERATION_STATE_FAILED);
  EXPECT_THAT(ErrorOf(Seen("op-1")),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("before it was planned")));
}

TEST_F(ResumptionTest, WhatIsPlannedBeforeItIsOnRecordWaitsForThat) {
  sink_.hold_commits = true;
  Start(Request("op-1"));
  EXPECT_EQ(planned_, 1);
  EXPECT_THAT(gateway_.calls, IsEmpty());
  ASSERT_EQ(sink_.commits.size(), 1);
  sink_.commits[0](absl::OkStatus());
  Run();
  ASSERT_EQ(sink_.commits.size(), 2) << "of the attempt";
  EXPECT_THAT(gateway_.calls, IsEmpty());
  sink_.commits[1](absl::OkStatus());
  Run();
  EXPECT_FALSE(gateway_.calls.empty());
  FinishAll("op-1");
}

TEST_F(ResumptionTest, NewTasksWaitUntilAllAreHeard) {
  Start(Request("op-1"));
  AcceptAll();
  TakeUp("op-1");
  const size_t calls = gateway_.calls.size();
  OperationRequest request = Request("op-2");
  next_sink_.latest.emplace("op-2", request.shown);
  ASSERT_OK(next_.Start(std::move(request)));
  Run();
  EXPECT_EQ(gateway_.calls.size(), calls);
  for (const auto& [host, devices] : destinations_) At(host).Accept();
  Run();
  EXPECT_GT(gateway_.calls.size(), calls);
  EXPECT_EQ(gateway_.calls.back()->start.operation_id(), "op-2");
}

// Who makes a communicator of a later epoch takes those of the former one from the GPUs.
TEST_F(ResumptionTest, NewTasksWaitForTheEndOfWhatGoesOverCommunicatorsOfTheFormerController) {
  Start(Request("op-1"));
  AcceptAll();
  RememberDestinations();
  OperationRequest left = Left("op-1");
  left.resumption->mutable_attempts()->rbegin()->set_has_communicators(true);
  next_sink_.latest["op-1"] = left.shown;
  ASSERT_OK(next_.Start(std::move(left)));
  OperationRequest request = Request("op-2");
  next_sink_.latest.emplace("op-2", request.shown);
  ASSERT_OK(next_.Start(std::move(request)));
  Run();
  for (const auto& [host, devices] : destinations_) At(host).adopted_to = devices;
  for (const auto& [host, devices] : destinations_) At(host).Accept();
  Run();
  const auto is_begun = [this] {
    return std::ranges::any_of(
        gateway_.calls, [](const auto& call) { return call->start.operation_id() == "op-2"; });
  };
  for (const auto& [host, devices] : destinations_) {
    EXPECT_FALSE(is_begun());
    Succeed(host);
  }
  ResolveAll();
  Run();
  EXPECT_EQ(Seen("op-1").state(), v1::OPERATION_STATE_COMMITTED);
  EXPECT_TRUE(is_begun());
}

TEST_F(ResumptionTest, TasksAreAcknowledgedOnceTheEndIsOnRecord) {
  sink_.hold_ends = true;
  Start(Request("op-1"));
  FinishAll("op-1");
  EXPECT_THAT(At("c").heard, ElementsAre(HasSubstr("commit")));
  EXPECT_EQ(running_.running(), 1);
  ASSERT_EQ(sink_.ends.size(), 1);
  sink_.ends[0](absl::OkStatus());
  EXPECT_EQ(At("c").heard.back(), "ack");
  EXPECT_EQ(running_.running(), 0);
}

TEST_F(ResumptionTest, AControllerThatWasReplacedLeavesItsTasksAsTheyAre) {
  sink_.hold_ends = true;
  Start(Request("op-1"));
  FinishAll("op-1");
  sink_.ends[0](absl::AbortedError("epoch 7 is fenced"));
  EXPECT_THAT(At("c").heard, ElementsAre(HasSubstr("commit")));
  EXPECT_TRUE(At("c").dropped);
  EXPECT_EQ(running_.running(), 0);
}

TEST_F(ResumptionTest, WhatDoesNotFitIsNotTakenUp) {
  Start(Request("op-1"));
  const v1::Operation shown = sink_.latest.at("op-1");
  const std::string bytes = sink_.resumptions.at("op-1");
  EXPECT_OK(ParseResumption(shown, bytes).status());
  const auto is_refused = StatusIs(absl::StatusCode::kDataLoss, HasSubstr("op-1"));
  EXPECT_THAT(ParseResumption(shown, bytes.substr(0, bytes.size() / 2)), is_refused);
  v1::Operation other = shown;
  other.set_attempt(2);
  EXPECT_THAT(ParseResumption(other, bytes), is_refused);
  other = shown;
  other.clear_replicas();
  EXPECT_THAT(ParseResumption(other, bytes), is_refused);
  stored::v1::OperationResumption changed;
  ASSERT_TRUE(changed.ParseFromString(bytes));
  for (auto& worker : *changed.mutable_attempts(0)->mutable_workers()) {
    if (worker.replicas_size() > 0) worker.set_replicas(0, 2);
  }
  EXPECT_THAT(ParseResumption(shown, changed.SerializeAsString()), is_refused);
}

}  // namespace
}  // namespace crossmesh
