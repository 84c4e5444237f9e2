// What a controller finds of the one before it.

#include "common/testing/status_matchers.h"
#include "controller/service/session_table.h"
#include "controller/testing/controller_reshard_fixture.h"

#include <string>

#include <gmock/gmock.h>
#include <grpcpp/client_context.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;

class ControllerRecoveryTest : public ControllerReshardFixture {
 protected:
  // Until all workers hold their tasks.
  std::string BeginAndHold(const std::string& request_id) {
    HoldAll();
    auto reader = StartExecution(Request(request_id));
    const auto first = reader.Next();
    EXPECT_OK(first);
    for (const auto& worker : workers_) worker->WaitUntilHolding(1);
    return first->operation().id();
  }
  void Restart() {
    EndController();
    StartController();
  }
  v1::Operation End(const std::string& id) {
    WaitUntil([&] { return Get(id)->has_end_time(); });
    return *Get(id);
  }
};

TEST_F(ControllerRecoveryTest, WhatClientsRegisteredIsThere) {
  const auto mesh = [this] {
    v1::GetMeshRequest request;
    request.set_name("train");
    return Call(*meshes_, &v1::MeshService::Stub::GetMesh, request);
  };
  const int64_t revision = mesh()->revision();
  Restart();
  ASSERT_OK(mesh());
  EXPECT_EQ(mesh()->revision(), revision);
  EXPECT_THAT(CreateMesh("train", "shard=2", "a.0,b.0"), IsOkAndHolds(revision));
  EXPECT_THAT(CreateMesh("train", "shard=4", "a.0-3"), StatusIs(absl::StatusCode::kAlreadyExists));
}

TEST_F(ControllerRecoveryTest, AnOperationThatHasEndedIsRememberedWithItsRequest) {
  ASSERT_OK_AND_ASSIGN(const v1::Operation before, Execute(Request("r")));
  Restart();
  ASSERT_OK_AND_ASSIGN(const v1::Operation after, Get(before.id()));
  EXPECT_EQ(after.SerializeAsString(), before.SerializeAsString());
  ASSERT_OK_AND_ASSIGN(const v1::Operation again, Execute(Request("r")));
  EXPECT_EQ(again.id(), before.id());
  EXPECT_EQ(workers_[2]->counts().commits, 1) << "it is not executed again";
}

TEST_F(ControllerRecoveryTest, AnOperationThatRanIsTakenUpWhereItRuns) {
  const std::string id = BeginAndHold("r");
  EndController();
  for (const auto& worker : workers_) worker->SetManner(FakeWorker::Manner::kDiligent);
  StartController();
  const v1::Operation last = End(id);
  EXPECT_EQ(last.state(), v1::OPERATION_STATE_COMMITTED);
  EXPECT_EQ(last.request_id(), "r");
  EXPECT_GT(last.report().destination_bytes(), 0);
  for (const auto& worker : workers_) {
    EXPECT_EQ(worker->counts().calls, 1) << "none was started again";
    EXPECT_EQ(worker->counts().adoptions, 1);
    WaitUntil([&] { return worker->counts().acknowledgements == 1; });
  }
  ASSERT_OK_AND_ASSIGN(const v1::Operation again, Execute(Request("r")));
  EXPECT_EQ(again.id(), id);
}

TEST_F(ControllerRecoveryTest, AControllerThatIsLongInStoppingLosesNoWorker) {
  const std::string id = BeginAndHold("r");
  grpc::ClientContext context;
  const auto open = sessions_->WorkerSession(&context);  // says nothing, and is waited for
  EXPECT_EQ(ListWorkers().size(), 4);                    // behind it, on the same connection
  controller_->Shutdown(2 * SessionTable::kReturnTime);
  EndController();
  for (const auto& worker : workers_) worker->SetManner(FakeWorker::Manner::kDiligent);
  StartController();
  EXPECT_EQ(End(id).state(), v1::OPERATION_STATE_COMMITTED);
}

TEST_F(ControllerRecoveryTest, ARequestThatComesAgainMeanwhileFollowsTheSameOperation) {
  const std::string id = BeginAndHold("r");
  Restart();
  auto reader = StartExecution(Request("r"));
  ASSERT_OK_AND_ASSIGN(const v1::ExecuteReshardResponse first, reader.Next());
  EXPECT_EQ(first.operation().id(), id);
  for (const auto& worker : workers_) {
    worker->WaitUntilHolding(2);  // the call that broke, and the adoption
    worker->Release();
  }
  ASSERT_OK_AND_ASSIGN(const v1::ExecuteReshardResponse last, reader.Last());
  EXPECT_EQ(last.operation().state(), v1::OPERATION_STATE_COMMITTED);
}

TEST_F(ControllerRecoveryTest, AWorkerThatIsGoneFailsItsReplicaAlone) {
  const std::string id = BeginAndHold("r");
  EndController();
  workers_.pop_back();  // d
  for (const auto& worker : workers_) worker->SetManner(FakeWorker::Manner::kDiligent);
  StartController();
  const v1::Operation last = End(id);
  EXPECT_EQ(last.state(), v1::OPERATION_STATE_PARTIAL);
  EXPECT_THAT(last.error(), HasSubstr("worker w-d"));
}

TEST_F(ControllerRecoveryTest, ItCanBeCancelledByTheNextController) {
  const std::string id = BeginAndHold("r");
  Restart();
  for (const auto& worker : workers_) worker->WaitUntilHolding(2);
  ASSERT_OK(Cancel(id, "enough"));
  EXPECT_EQ(End(id).state(), v1::OPERATION_STATE_CANCELLED);
}

TEST_F(ControllerRecoveryTest, NumbersOfJobsGrowFromOneControllerToTheNext) {
  ASSERT_OK_AND_ASSIGN(const v1::Operation before, Execute(Request("r")));
  Restart();
  for (const auto& worker : workers_) worker->Rejoin();
  ASSERT_OK_AND_ASSIGN(const v1::Operation after, Execute(Request("s")));
  EXPECT_GT(after.id(), before.id());
}

TEST_F(ControllerRecoveryTest, AStoreThatCannotBeReadIsRefused) {
  const uint64_t epoch = controller_->epoch();
  EndController();
  ASSERT_OK(store_->Commit({.epoch = epoch, .writes = {{"operation/op-1", "?"}}}).status());
  EXPECT_THAT(Controller::Create({.listen = {address_}, .metrics_listen = "", .store = store_}),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("operation/op-1")));
}

}  // namespace
}  // namespace crossmesh
