// A controller that is killed in the middle of an operation.

#include "common/base/clock.h"
#include "common/base/unix_listener.h"
#include "common/rpc/channel.h"
#include "common/rpc/status_codec.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_folder.h"
#include "crossmesh/v1/execution_service.grpc.pb.h"
#include "tests/live/live_cluster.h"
#include "tests/live/reshard_case.h"
#include "tests/live/running_reshard.h"

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include <absl/strings/str_cat.h>
#include <absl/time/time.h>
#include <nlohmann/json.hpp>
#include <sys/socket.h>

namespace crossmesh {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr absl::Duration kComeBackMax = absl::Seconds(30);
constexpr absl::Duration kDeadline = absl::Seconds(20);  // of an operation

// What a worker answers to a task of a controller of `epoch`.
absl::Status StartTask(const std::string& worker_address, uint64_t epoch) {
  const auto channel = BuildRpcChannel({.address = worker_address});
  if (!channel.ok()) return channel.status();
  const auto stub = v1::ExecutionService::NewStub(*channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
  const auto call = stub->Execute(&context);
  v1::ExecuteRequest request;
  v1::ExecuteRequest::Start& start = *request.mutable_start();
  start.set_operation(1);
  start.set_operation_id("op-0000000000000001");
  start.set_epoch(epoch);
  start.set_attempt(1);
  start.set_token(std::string(16, 't'));
  start.set_part_digest(std::string(32, '0'));
  start.set_source_storage("training");
  start.set_destination_storage("serving");
  start.mutable_deadline()->set_seconds(5);
  start.mutable_stall_limit()->set_seconds(1);
  call->Write(request);
  v1::ExecuteResponse response;
  if (call->Read(&response)) {
    context.TryCancel();
    return absl::OkStatus();
  }
  return FromGrpcStatus(call->Finish());
}

TEST(ControllerLossTest, WorkersAnswerTheNextControllerAndRefuseTheFormer) {
  ASSERT_OK_AND_ASSIGN(const auto cluster,
                       LiveCluster::Start({.workers = {"node-0", "node-1", "node-2"}}));
  ASSERT_OK_AND_ASSIGN(
      const auto reshard,
      ReshardCase::Create({.manifest = TensorsOf(256 << 20), .binding = v1::BINDING_MODE_IN_PLACE},
                          *cluster));
  reshard->spec().mutable_deadline()->set_seconds(absl::ToInt64Seconds(kDeadline));
  ASSERT_OK_AND_ASSIGN(const nlohmann::json former, cluster->Ready(LiveCluster::kController));
  v1::ReshardSpec slow = reshard->spec();  // so that it is not over when the controller dies
  slow.set_nic_share(0.02);
  RunningReshard running(cluster->controller_address(), slow);
  ASSERT_TRUE(WaitUntil(kComeBackMax, [&] { return reshard->HasArrived("node-1"); }));
  ASSERT_FALSE(running.HasEnded());
  cluster->Kill(LiveCluster::kController);

  ASSERT_OK(cluster->StartController());
  ASSERT_OK(cluster->WaitForAllWorkers());
  ASSERT_OK_AND_ASSIGN(const nlohmann::json present, cluster->Ready(LiveCluster::kController));
  EXPECT_GT(present.at("epoch").get<uint64_t>(), former.at("epoch").get<uint64_t>());
  // Its metadata was in memory: the client is told so and does not wait for ever.
  EXPECT_THAT(running.Result().status(), AnyOf(StatusIs(absl::StatusCode::kNotFound),
                                               StatusIs(absl::StatusCode::kUnavailable)));

  // The next operation takes the same storages. What the former one still runs there is cancelled
  // for it, long before its deadline.
  ASSERT_OK(reshard->FillSource(2));
  const RealClock clock;
  const absl::Duration begin = clock.Monotonic();
  ASSERT_OK_AND_ASSIGN(const v1::Operation next,
                       Execute(cluster->controller_address(), reshard->spec()));
  EXPECT_OK(OutcomeOf(next));
  EXPECT_LT(clock.Monotonic() - begin, kDeadline / 2);
  EXPECT_OK(reshard->CheckAll(2));

  for (const std::string& worker : cluster->workers()) {
    ASSERT_OK_AND_ASSIGN(const nlohmann::json ready, cluster->Ready(worker));
    EXPECT_THAT(StartTask(ready.at("execution_address"), former.at("epoch").get<uint64_t>()),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr(absl::StrCat("epoch ", former.at("epoch").get<uint64_t>()))));
    EXPECT_THAT(cluster->Metric(worker, "crossmesh_worker_commands_rejected_total",
                                R"(reason="stale_epoch")"),
                IsOkAndHolds(1));
  }
}

// The controller is killed after it has put the operation on record, while one worker does not know
// of it yet: what stands at that worker's address accepts connections and says nothing.
TEST(ControllerLossTest, AnOperationOfWhichNotAllWorkersHadHeardMayBeAskedForAgain) {
  const TemporaryFolder state;
  ASSERT_OK_AND_ASSIGN(
      const auto cluster,
      LiveCluster::Start({.workers = {"node-0", "node-1", "node-2"},
                          .controller_flags = {"--state-dir", state.PathOf("store")}}));
  ASSERT_OK_AND_ASSIGN(const auto reshard,
                       ReshardCase::Create({.manifest = TensorsOf(1 << 20)}, *cluster));
  const std::string address = cluster->PathOf("node-2.sock");
  std::filesystem::rename(address, cluster->PathOf("aside"));
  ASSERT_OK_AND_ASSIGN(UnixListener deaf, UnixListener::Listen(address, SOCK_STREAM));
  cluster->Kill(LiveCluster::kController);  // which was connected to the worker
  ASSERT_OK(cluster->StartController());
  ASSERT_OK(cluster->WaitForAllWorkers());
  RunningReshard running(cluster->controller_address(), reshard->spec());
  ASSERT_TRUE(WaitUntil(kComeBackMax, [&] {
    const absl::StatusOr<v1::Worker> told = cluster->GetWorker("node-1");
    return told.ok() && told->running_tasks() == 1;
  }));
  cluster->Kill(LiveCluster::kController);
  deaf.Close();
  std::filesystem::rename(cluster->PathOf("aside"), address);
  ASSERT_OK(cluster->StartController());

  ASSERT_OK_AND_ASSIGN(const v1::Operation ended, running.Result());
  EXPECT_THAT(OutcomeOf(ended), StatusIs(absl::StatusCode::kUnavailable,
                                         HasSubstr("worker node-2: expected a task to take up")));
  v1::ExecuteReshardRequest request;
  *request.mutable_spec() = reshard->spec();
  request.set_request_id(ended.request_id());
  ASSERT_OK_AND_ASSIGN(const v1::Operation same,
                       cluster->client().Execute(request, [](const v1::Operation&) {}));
  EXPECT_EQ(same.SerializeAsString(), ended.SerializeAsString()) << "it was done again";
  ASSERT_OK(reshard->FillSource(2));
  ASSERT_OK_AND_ASSIGN(const v1::Operation next,
                       Execute(cluster->controller_address(), reshard->spec()));
  EXPECT_NE(next.id(), ended.id());
  EXPECT_OK(OutcomeOf(next));
  EXPECT_OK(reshard->CheckAll(2));
}

TEST(ControllerLossTest, WithoutANextControllerWorkersStopByTheDeadline) {
  ASSERT_OK_AND_ASSIGN(const auto cluster, LiveCluster::Start({.workers = {"node-0", "node-1"}}));
  ASSERT_OK_AND_ASSIGN(const auto reshard,
                       ReshardCase::Create({.manifest = TensorsOf(256 << 20),
                                            .destination = "on node-1.0",
                                            .replica_axes = {},
                                            .binding = v1::BINDING_MODE_IN_PLACE},
                                           *cluster));
  reshard->spec().mutable_deadline()->set_seconds(10);
  const RunningReshard running(cluster->controller_address(), reshard->spec());
  ASSERT_TRUE(WaitUntil(kComeBackMax, [&] { return reshard->HasArrived("node-1"); }));
  cluster->Kill(LiveCluster::kController);
  for (const std::string& worker : cluster->workers()) {
    EXPECT_TRUE(WaitUntil(absl::Seconds(15), [&] {
      const auto relays = cluster->Metric(worker, "crossmesh_worker_relays_in_progress");
      const auto staging = cluster->Metric(worker, "crossmesh_worker_staging_bytes", "used");
      return relays.ok() && *relays == 0 && staging.ok() && *staging == 0;
    })) << worker;
  }
}

}  // namespace
}  // namespace crossmesh
