// Reshards through a controller's own API, with workers that move nothing.

#include "common/base/thread.h"
#include "common/testing/status_matchers.h"
#include "controller/testing/controller_reshard_fixture.h"

#include <functional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using Operations = v1::OperationService::Stub;

class ControllerReshardTest : public ControllerReshardFixture {
 protected:
  StreamReader<v1::WatchOperationResponse> Watch(const std::string& id) {
    v1::WatchOperationRequest request;
    request.set_id(id);
    return StreamReader<v1::WatchOperationResponse>(
        [&](auto* context) { return operations_->WatchOperation(context, request); });
  }
};

TEST_F(ControllerReshardTest, APlanNeedsNoWorkerAndIsCached) {
  for (const auto& worker : workers_) worker->Leave();
  WaitUntil([this] { return ListWorkers().empty(); });
  v1::PlanReshardRequest request;
  *request.mutable_spec() = Request("x").spec();
  request.set_explain(true);
  using Reshards = v1::ReshardService::Stub;
  ASSERT_OK_AND_ASSIGN(const auto first, Call(*reshards_, &Reshards::PlanReshard, request));
  ASSERT_OK_AND_ASSIGN(const auto second, Call(*reshards_, &Reshards::PlanReshard, request));
  EXPECT_FALSE(first.summary().cached());
  EXPECT_TRUE(second.summary().cached());
  EXPECT_EQ(first.summary().id(), second.summary().id());
  EXPECT_EQ(first.summary().destination_bytes(), 2 * 64 * 8 * 4);
  EXPECT_EQ(first.summary().replicas(), 2);
  EXPECT_FALSE(first.text().empty());
}

TEST_F(ControllerReshardTest, BadSpecificationsAreRefusedWithTheirField) {
  using Request = v1::ExecuteReshardRequest;
  using Change = std::function<void(v1::ReshardSpec&, Request&)>;
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  const std::vector<std::tuple<Change, absl::StatusCode, std::string>> cases = {
      {[](auto& s, auto&) { s.mutable_source()->set_mesh("nowhere"); }, absl::StatusCode::kNotFound,
       "spec.source.mesh: mesh \"nowhere\": expected a registered one, found none"},
      {[](auto& s, auto&) { s.set_manifest("nothing"); }, absl::StatusCode::kNotFound,
       "spec.manifest"},
      {[](auto& s, auto&) { s.set_strategy("magic"); }, kInvalid, "spec.strategy"},
      {[](auto& s, auto&) { s.mutable_destination()->clear_rules(); }, kInvalid,
       "spec.destination.rules"},
      {[](auto& s, auto&) { s.mutable_source()->clear_storage(); }, kInvalid,
       "spec.source.storage"},
      {[](auto& s, auto&) { s.mutable_deadline()->set_seconds(1 << 20); }, kInvalid,
       "spec.deadline"},
      {[](auto&, auto& r) { r.clear_request_id(); }, kInvalid, "request_id"},
  };
  for (const auto& [change, code, said] : cases) {
    Request request = ControllerReshardTest::Request("bad");
    change(*request.mutable_spec(), request);
    EXPECT_THAT(Execute(request), StatusIs(code, HasSubstr(said)));
  }
}

TEST_F(ControllerReshardTest, ALayoutThatDoesNotFitFailsTheOperation) {
  v1::ExecuteReshardRequest request = Request("bad-layout");
  request.mutable_spec()->mutable_source()->mutable_rules(0)->set_layout("[shard, shard]");
  ASSERT_OK_AND_ASSIGN(const v1::Operation operation, Execute(request));
  EXPECT_EQ(operation.state(), v1::OPERATION_STATE_FAILED);
  EXPECT_EQ(operation.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(operation.error(), HasSubstr("shard"));
}

TEST_F(ControllerReshardTest, AnExecutionCommitsAndReports) {
  ASSERT_OK_AND_ASSIGN(const v1::Operation operation, Execute(Request("r1")));
  EXPECT_EQ(operation.state(), v1::OPERATION_STATE_COMMITTED) << operation.DebugString();
  EXPECT_EQ(operation.request_id(), "r1");
  EXPECT_EQ(operation.reshard().source().mesh(), "train");
  EXPECT_THAT(operation.replicas(), SizeIs(2));
  EXPECT_EQ(operation.replicas(1).devices(), "d.0");
  EXPECT_EQ(operation.report().destination_bytes(), 2 * 64 * 8 * 4);
  EXPECT_FALSE(operation.report().plan_cached());
  EXPECT_GT(operation.report().bound_seconds(), 0);
  EXPECT_EQ(Get(operation.id())->SerializeAsString(), operation.SerializeAsString());
}

TEST_F(ControllerReshardTest, ASteadyStateExecutionIsOneCallToEachWorkerAndSendsNoPart) {
  for (const char* id : {"r1", "r2", "r3"}) {
    ASSERT_OK_AND_ASSIGN(const v1::Operation operation, Execute(Request(id)));
    EXPECT_EQ(operation.state(), v1::OPERATION_STATE_COMMITTED);
    EXPECT_EQ(operation.report().plan_cached(), std::string(id) != "r1");
  }
  for (const auto& worker : workers_) {
    EXPECT_EQ(worker->counts().calls, 3);
    EXPECT_EQ(worker->counts().parts, 1);
  }
}

TEST_F(ControllerReshardTest, ARequestIdNamesOneOperation) {
  ASSERT_OK_AND_ASSIGN(const v1::Operation first, Execute(Request("r1")));
  ASSERT_OK_AND_ASSIGN(const v1::Operation again, Execute(Request("r1")));
  EXPECT_EQ(again.SerializeAsString(), first.SerializeAsString());
  EXPECT_EQ(workers_[0]->counts().calls, 1);
  v1::ExecuteReshardRequest other = Request("r1");
  other.mutable_spec()->set_seed(5);
  EXPECT_THAT(Execute(other), StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("r1")));
}

TEST_F(ControllerReshardTest, ARunningOperationIsJoinedByItsRequestId) {
  workers_[2]->SetManner(FakeWorker::Manner::kHolding);
  bool joined = false;
  ASSERT_OK_AND_ASSIGN(const v1::Operation operation,
                       Execute(Request("r1"), [&](const v1::Operation& now) {
                         if (std::exchange(joined, true)) return;
                         workers_[2]->WaitUntilHolding(1);
                         // A second client asks for the same and reads the present state.
                         auto second = StartExecution(Request("r1"));
                         ASSERT_OK_AND_ASSIGN(const auto present, second.Next());
                         EXPECT_EQ(present.operation().id(), now.id());
                         workers_[2]->Release();
                         ASSERT_OK_AND_ASSIGN(const auto last, second.Last());
                         EXPECT_EQ(last.operation().state(), v1::OPERATION_STATE_COMMITTED);
                       }));
  EXPECT_TRUE(joined);
  EXPECT_EQ(operation.state(), v1::OPERATION_STATE_COMMITTED);
}

TEST_F(ControllerReshardTest, AWorkerThatLeftFailsTheOperationBeforeAnythingStarts) {
  workers_[3]->Leave();
  WaitUntil([this] { return ListWorkers().size() == 3; });
  ASSERT_OK_AND_ASSIGN(const v1::Operation operation, Execute(Request("r1")));
  EXPECT_EQ(operation.state(), v1::OPERATION_STATE_FAILED);
  EXPECT_EQ(operation.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(operation.error(), HasSubstr("d.0"));
  EXPECT_EQ(workers_[0]->counts().calls, 0);
}

TEST_F(ControllerReshardTest, ARefusalOfAWorkerNamesItAndItsReason) {
  workers_[3]->SetManner(FakeWorker::Manner::kRefusing);
  ASSERT_OK_AND_ASSIGN(const v1::Operation operation, Execute(Request("r1")));
  EXPECT_EQ(operation.replicas(1).state(), v1::REPLICA_STATE_FAILED);
  EXPECT_THAT(operation.error(), AllOf(HasSubstr("w-d"), HasSubstr("storage t")));
}

TEST_F(ControllerReshardTest, CancelEndsARunningOperation) {
  HoldAll();
  bool cancelled = false;
  ASSERT_OK_AND_ASSIGN(const v1::Operation operation,
                       Execute(Request("r1"), [&](const v1::Operation& now) {
                         if (now.state() != v1::OPERATION_STATE_RUNNING || cancelled) return;
                         cancelled = true;
                         EXPECT_OK(Cancel(now.id(), "not needed"));
                       }));
  EXPECT_EQ(operation.state(), v1::OPERATION_STATE_CANCELLED);
  EXPECT_THAT(operation.error(), HasSubstr("not needed"));
  EXPECT_EQ(workers_[2]->counts().cancels, 1);
  EXPECT_EQ(workers_[2]->counts().abandons, 1);
  EXPECT_OK(Cancel(operation.id(), "again"));
  for (const auto& worker : workers_) worker->SetManner(FakeWorker::Manner::kDiligent);
  ASSERT_OK_AND_ASSIGN(const v1::Operation committed, Execute(Request("r2")));
  EXPECT_THAT(Cancel(committed.id(), "too late"),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr(committed.id()), HasSubstr("COMMITTED"))));
  EXPECT_THAT(Cancel("op-0", ""), StatusIs(absl::StatusCode::kNotFound, HasSubstr("op-0")));
}

TEST_F(ControllerReshardTest, AWorkerLostInTheMiddleFailsItsReplicaAndTheNextOperationIsServed) {
  HoldAll();
  bool lost = false;
  ASSERT_OK_AND_ASSIGN(const v1::Operation operation,
                       Execute(Request("r1"), [&](const v1::Operation& now) {
                         if (now.state() != v1::OPERATION_STATE_RUNNING || lost) return;
                         lost = true;
                         workers_[3]->Vanish();
                         for (int i = 0; i < 3; ++i) workers_[i]->Release();
                       }));
  EXPECT_EQ(operation.state(), v1::OPERATION_STATE_PARTIAL) << operation.DebugString();
  EXPECT_EQ(operation.replicas(0).state(), v1::REPLICA_STATE_COMMITTED);
  EXPECT_THAT(operation.replicas(1).error(), HasSubstr("w-d"));

  workers_.pop_back();
  AddWorker("d");
  ASSERT_OK_AND_ASSIGN(const v1::Operation next, Execute(Request("r2")));
  EXPECT_EQ(next.state(), v1::OPERATION_STATE_COMMITTED) << next.DebugString();
}

TEST_F(ControllerReshardTest, HeartbeatsTellProgress) {
  workers_[2]->SetManner(FakeWorker::Manner::kHolding);
  bool sent = false;
  int64_t moved = 0;
  ASSERT_OK_AND_ASSIGN(const v1::Operation operation,
                       Execute(Request("r1"), [&](const v1::Operation& now) {
                         if (!sent) {
                           workers_[2]->WaitUntilHolding(1);
                           workers_[2]->SendHeartbeat(now.id(), 1000);
                           sent = true;
                         } else if (now.moved_bytes() == 1000 && moved == 0) {
                           moved = now.moved_bytes();
                           EXPECT_EQ(ListWorkers()[2].running_tasks(), 1);
                           workers_[2]->Release();
                         }
                       }));
  EXPECT_EQ(moved, 1000);
  // Without another heartbeat.
  EXPECT_EQ(ListWorkers()[2].running_tasks(), 0);
  EXPECT_EQ(operation.moved_bytes(), operation.total_bytes());
}

TEST_F(ControllerReshardTest, AWatchOfAnUnknownOperationIsNotFoundAndOfAFinishedOneHasItsReport) {
  ASSERT_OK_AND_ASSIGN(const v1::Operation operation, Execute(Request("r1")));
  auto watch = Watch(operation.id());
  ASSERT_OK_AND_ASSIGN(const auto only, watch.Next());
  EXPECT_EQ(only.operation().SerializeAsString(), operation.SerializeAsString());
  EXPECT_FALSE(watch.Next().ok());
  EXPECT_TRUE(watch.ended());
  EXPECT_THAT(Watch("op-none").Next(), StatusIs(absl::StatusCode::kNotFound, HasSubstr("op-none")));
}

TEST_F(ControllerReshardTest, ADrainedWorkerIsToldAndGetsNoWork) {
  v1::DrainWorkerRequest request;
  request.set_name("w-d");
  ASSERT_OK(Call(*sessions_, &v1::WorkerService::Stub::DrainWorker, request));
  ASSERT_OK_AND_ASSIGN(const v1::WorkerSessionResponse told, workers_[3]->ReadSession());
  EXPECT_TRUE(told.has_drain());
  ASSERT_OK_AND_ASSIGN(const v1::Operation operation, Execute(Request("r1")));
  EXPECT_EQ(operation.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(operation.error(), HasSubstr("draining"));
  request.set_name("w-none");
  EXPECT_THAT(Call(*sessions_, &v1::WorkerService::Stub::DrainWorker, request),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("w-none")));
}

TEST_F(ControllerReshardTest, ThousandsOfOperationsLeaveAThousand) {
  constexpr int kOperations = 2000;
  std::string first;
  for (int i = 0; i < kOperations; ++i) {
    ASSERT_OK_AND_ASSIGN(const v1::Operation operation, Execute(Request(absl::StrCat("r", i))));
    ASSERT_EQ(operation.state(), v1::OPERATION_STATE_COMMITTED);
    if (i == 0) first = operation.id();
  }
  int64_t listed = 0;
  std::string before;
  v1::ListOperationsRequest request;
  request.set_page_size(300);
  do {
    ASSERT_OK_AND_ASSIGN(const auto page, Call(*operations_, &Operations::ListOperations, request));
    for (const v1::Operation& operation : page.operations()) {
      EXPECT_TRUE(before.empty() || operation.id() < before) << operation.id();
      before = operation.id();
      ++listed;
    }
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  EXPECT_EQ(listed, 1000);
  EXPECT_THAT(Get(first), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_EQ(workers_[0]->counts().parts, 1);
}

TEST_F(ControllerReshardTest, AShutdownWaitsForWhatRunsAndRefusesWhatIsNew) {
  workers_[2]->SetManner(FakeWorker::Manner::kHolding);
  Thread shutdown;
  ASSERT_OK_AND_ASSIGN(
      const v1::Operation operation, Execute(Request("r1"), [&](const v1::Operation& now) {
        // One replica may be whole, and so VERIFYING, before the other's worker has accepted.
        if (now.state() == v1::OPERATION_STATE_PREPARING || shutdown.joinable()) return;
        shutdown = Thread("shutdown", [this] { controller_->Shutdown(absl::Seconds(30)); });
        v1::ExecuteReshardRequest unknown = Request("r2");
        unknown.mutable_spec()->set_manifest("nothing");
        WaitUntil([&] { return absl::IsUnavailable(Execute(unknown).status()); });
        workers_[2]->Release();
      }));
  EXPECT_EQ(operation.state(), v1::OPERATION_STATE_COMMITTED);
  shutdown.Join();
}

}  // namespace
}  // namespace crossmesh
