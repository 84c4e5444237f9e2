// Operations between GPUs, through a controller's whole service.

#include "common/base/clock.h"
#include "common/rpc/channel.h"
#include "common/rpc/deadline.h"
#include "common/rpc/status_codec.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_folder.h"
#include "controller/controller.h"
#include "controller/testing/fake_worker.h"
#include "crossmesh/v1/reshard_service.grpc.pb.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

class ControllerGpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    address_ = absl::StrCat("unix:", folder_.PathOf("controller.sock"));
    StartController();
    for (const char* host : {"a", "b", "c"}) {
      workers_.push_back(std::make_unique<FakeWorker>(
          FakeWorker::Options{.folder = folder_.path(),
                              .name = absl::StrCat("w-", host),
                              .devices = absl::StrCat(host, ".0"),
                              .controller = address_,
                              .gpu = RankName{absl::StrCat("GPU-", host), 1}}));
    }
  }
  void TearDown() override {
    workers_.clear();
    controller_.reset();
  }

  void StartController() {
    ASSERT_OK_AND_ASSIGN(controller_, Controller::Create({.listen = {address_},
                                                          .metrics_listen = "",
                                                          .lost_after = absl::Minutes(10)}));
    ASSERT_OK_AND_ASSIGN(const auto channel, BuildRpcChannel({.address = address_}));
    reshards_ = v1::ReshardService::NewStub(channel);
    workers_stub_ = v1::WorkerService::NewStub(channel);
  }

  // A tensor of which a.0 and b.0 hold one half each, all of it to c.0.
  static v1::ExecuteReshardRequest Request(const std::string& request_id) {
    v1::ExecuteReshardRequest request;
    request.set_request_id(request_id);
    v1::ReshardSpec& spec = *request.mutable_spec();
    v1::TensorSpec& tensor = *spec.mutable_inline_manifest()->add_tensors();
    tensor.set_name("w");
    tensor.set_dtype("F32");
    tensor.add_shape(64);
    spec.mutable_source()->set_storage("s");
    SetSide(*spec.mutable_source(), "shard=2", "a.0,b.0", "[shard]");
    spec.mutable_destination()->set_storage("t");
    SetSide(*spec.mutable_destination(), "copy=1", "c.0", "[-]");
    return request;
  }
  static void SetSide(v1::ReshardSide& side, const std::string& axes, const std::string& devices,
                      const std::string& layout) {
    side.mutable_inline_mesh()->set_axes(axes);
    side.mutable_inline_mesh()->set_devices(devices);
    side.add_rules()->set_pattern("*");
    side.mutable_rules(0)->set_layout(layout);
  }

  std::vector<v1::Worker> ListWorkers() {
    v1::ListWorkersResponse response;
    grpc::ClientContext context;
    SetDeadline(context);
    EXPECT_OK(
        FromGrpcStatus(workers_stub_->ListWorkers(&context, v1::ListWorkersRequest(), &response)));
    return {response.workers().begin(), response.workers().end()};
  }
  // Asks again and again, for 30 s at most.
  static void WaitUntil(const std::function<bool()>& condition) {
    const RealClock clock;
    const absl::Duration end = clock.Monotonic() + absl::Seconds(30);
    while (!condition()) {
      ASSERT_LT(clock.Monotonic(), end) << "waited in vain";
    }
  }

  v1::Operation Execute(const std::string& request_id) {
    grpc::ClientContext context;
    SetDeadline(context, absl::Seconds(60));
    const auto reader = reshards_->ExecuteReshard(&context, Request(request_id));
    v1::ExecuteReshardResponse response;
    v1::Operation last;
    while (reader->Read(&response)) last = response.operation();
    EXPECT_OK(FromGrpcStatus(reader->Finish()));
    return last;
  }

  FakeWorker& a() { return *workers_[0]; }
  FakeWorker& c() { return *workers_[2]; }

  const TemporaryFolder folder_;
  std::string address_;
  std::unique_ptr<Controller> controller_;
  std::unique_ptr<v1::ReshardService::Stub> reshards_;
  std::unique_ptr<v1::WorkerService::Stub> workers_stub_;
  std::vector<std::unique_ptr<FakeWorker>> workers_;
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
  EXPECT_EQ(Execute("r1").state(), v1::OPERATION_STATE_COMMITTED);
  EXPECT_EQ(Execute("r2").state(), v1::OPERATION_STATE_COMMITTED);
  for (const auto& worker : workers_) EXPECT_EQ(worker->communicators().creations(), 1);
  const v1::ExecuteRequest::Start start = c().last_start();
  ASSERT_EQ(start.communicators(0).key().ranks_size(), 3);
  EXPECT_EQ(start.communicators(0).key().ranks(2).gpu(), "GPU-c");
  EXPECT_THAT(start.communicators(0).devices(), SizeIs(3));
}

TEST_F(ControllerGpuTest, ACreationThatFailsFailsTheOperationWithRankAndWorker) {
  c().communicators().SetCreation(absl::InternalError("unhandled system error"));
  const v1::Operation failed = Execute("r1");
  EXPECT_EQ(failed.state(), v1::OPERATION_STATE_FAILED);
  EXPECT_THAT(failed.error(), HasSubstr("rank GPU-c#1: worker w-c: unhandled system error"));
  c().communicators().SetCreation(absl::OkStatus());
  EXPECT_EQ(Execute("r2").state(), v1::OPERATION_STATE_COMMITTED);
  EXPECT_THAT(a().communicators().keys(), SizeIs(1));
}

TEST_F(ControllerGpuTest, AnotherProcessOfAGpuGetsAnotherCommunicator) {
  EXPECT_EQ(Execute("r1").state(), v1::OPERATION_STATE_COMMITTED);
  c().communicators().ReplaceProcess();
  c().SendGpuHeartbeat();
  WaitUntil([&] { return ListWorkers()[2].gpus(0).process().incarnation() == 2; });
  EXPECT_EQ(Execute("r2").state(), v1::OPERATION_STATE_COMMITTED);
  EXPECT_EQ(c().last_start().communicators(0).key().ranks(2).incarnation(), 2);
  WaitUntil([&] { return a().communicators().keys().size() == 1; });
}

TEST_F(ControllerGpuTest, AControllerThatStartsAnewStopsWhatItsFormerSelfHadMade) {
  EXPECT_EQ(Execute("r1").state(), v1::OPERATION_STATE_COMMITTED);
  controller_.reset();
  StartController();
  for (const auto& worker : workers_) worker->Rejoin();
  EXPECT_EQ(Execute("r2").state(), v1::OPERATION_STATE_COMMITTED);
  ASSERT_THAT(c().communicators().keys(), SizeIs(1));
  EXPECT_EQ(c().communicators().keys().begin()->epoch, controller_->epoch());
  EXPECT_EQ(c().communicators().creations(), 2);
}

}  // namespace
}  // namespace crossmesh
