// Operations between GPUs, through a controller's whole service.

#include "common/testing/status_matchers.h"
#include "controller/testing/controller_fixture.h"

#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

class ControllerGpuTest : public ControllerFixture {
 protected:
  void SetUp() override {
    StartController();
    for (const std::string host : {"a", "b", "c"}) {
      AddWorker(host, "", RankName{absl::StrCat("GPU-", host), 1});
    }
  }

  // A tensor of which a.0 and b.0 hold one half each, all of it to c.0.
  v1::Operation Run(const std::string& request_id) {
    v1::ExecuteReshardRequest request;
    request.set_request_id(request_id);
    v1::ReshardSpec& spec = *request.mutable_spec();
    AddTensor(spec, 64);
    spec.mutable_source()->set_storage("s");
    SetSide(*spec.mutable_source(), "shard=2", "a.0,b.0", "[shard]");
    spec.mutable_destination()->set_storage("t");
    SetSide(*spec.mutable_destination(), "copy=1", "c.0", "[-]");
    const absl::StatusOr<v1::Operation> operation = Execute(request);
    EXPECT_OK(operation);
    return *operation;
  }

  FakeWorker& a() { return *workers_[0]; }
  FakeWorker& c() { return *workers_[2]; }
};

TEST_F(ControllerGpuTest, AWorkersGpusAreListed) {
  const std::vector<v1::Worker> workers = ListWorkers();
  ASSERT_THAT(workers, SizeIs(3));
  ASSERT_EQ(workers[0].gpus_size(), 1);
  EXPECT_EQ(workers[0].gpus(0).device(), "a.0");
  EXPECT_EQ(workers[0].gpus(0).process().gpu(), "GPU-a");
  EXPECT_EQ(workers[0].gpus(0).process().incarnation(), 1);
}

TEST_F(ControllerGpuTest, OperationsOfOneGroupRunOverOneCommunicator) {
  EXPECT_EQ(Run("r1").state(), v1::OPERATION_STATE_COMMITTED);
  EXPECT_EQ(Run("r2").state(), v1::OPERATION_STATE_COMMITTED);
  for (const auto& worker : workers_) EXPECT_EQ(worker->communicators().creations(), 1);
  const v1::ExecuteRequest::Start start = c().last_start();
  ASSERT_EQ(start.communicators(0).key().ranks_size(), 3);
  EXPECT_EQ(start.communicators(0).key().ranks(2).gpu(), "GPU-c");
  EXPECT_THAT(start.communicators(0).devices(), SizeIs(3));
}

TEST_F(ControllerGpuTest, ACreationThatFailsFailsTheOperationWithRankAndWorker) {
  c().communicators().SetCreation(absl::InternalError("unhandled system error"));
  const v1::Operation failed = Run("r1");
  EXPECT_EQ(failed.state(), v1::OPERATION_STATE_FAILED);
  EXPECT_THAT(failed.error(), HasSubstr("rank GPU-c#1: worker w-c: unhandled system error"));
  c().communicators().SetCreation(absl::OkStatus());
  EXPECT_EQ(Run("r2").state(), v1::OPERATION_STATE_COMMITTED);
  EXPECT_THAT(a().communicators().keys(), SizeIs(1));
}

TEST_F(ControllerGpuTest, AnotherProcessOfAGpuGetsAnotherCommunicator) {
  EXPECT_EQ(Run("r1").state(), v1::OPERATION_STATE_COMMITTED);
  c().communicators().ReplaceProcess();
  c().SendGpuHeartbeat();
  WaitUntil([&] { return ListWorkers()[2].gpus(0).process().incarnation() == 2; });
  EXPECT_EQ(Run("r2").state(), v1::OPERATION_STATE_COMMITTED);
  EXPECT_EQ(c().last_start().communicators(0).key().ranks(2).incarnation(), 2);
  WaitUntil([&] { return a().communicators().keys().size() == 1; });
}

TEST_F(ControllerGpuTest, AControllerThatStartsAnewStopsWhatItsFormerSelfHadMade) {
  EXPECT_EQ(Run("r1").state(), v1::OPERATION_STATE_COMMITTED);
  controller_.reset();
  StartController();
  for (const auto& worker : workers_) worker->Rejoin();
  EXPECT_EQ(Run("r2").state(), v1::OPERATION_STATE_COMMITTED);
  ASSERT_THAT(c().communicators().keys(), SizeIs(1));
  EXPECT_EQ(c().communicators().keys().begin()->epoch, controller_->epoch());
  EXPECT_EQ(c().communicators().creations(), 2);
}

}  // namespace
}  // namespace crossmesh
