#include "client/client.h"
#include "common/base/clock.h"
#include "common/mesh/gpu_host.h"
#include "common/testing/status_matchers.h"
#include "common/wire/tensor_codec.h"
#include "tests/live/gpu_fixture.h"
#include "tests/live/reshard_case.h"
#include "tests/live/running_reshard.h"
#include "tests/standin/stand_in.h"

#include <csignal>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;

class GpuTest : public GpuFixture {};

TEST_F(GpuTest, MovesTensorsBetweenGpusAgainAndAgain) {
  Start();
  MakeCase();
  for (const uint8_t version : {1, 2, 3}) ExpectCommits(version);
}

// In few long steps, of chunks up to 16 MiB, where others have some of 64 KiB.
TEST_F(GpuTest, WhereGpusAreDescribedTheirPlansGoBySteps) {
  Start();
  MakeCase();
  ASSERT_OK_AND_ASSIGN(const Topology network, GpuHosts("h100x8", {"node-0", "node-1"}));
  *spec_.mutable_topology() = ToProto(network);
  ASSERT_OK_AND_ASSIGN(Client client, Client::Connect(cluster_->controller_address(), {}));
  v1::PlanReshardRequest request;
  *request.mutable_spec() = spec_;
  ASSERT_OK_AND_ASSIGN(const v1::PlanReshardResponse planned, client.Plan(request));
  EXPECT_THAT(planned.summary().search(), HasSubstr(" steps, "));
  EXPECT_GT(planned.summary().chunk_bytes(), Plan::kChunkBytesDefault);
  for (const uint8_t version : {1, 2}) ExpectCommits(version);
}

// Device 0 of each host is memory of the host.
Topology WithHostMemory() {
  std::vector<Host> hosts = {*GpuHost("h100x8", "node-0"), *GpuHost("h100x8", "node-1")};
  for (Host& host : hosts)
    std::erase_if(host.gpus, [](const HostGpu& gpu) { return gpu.device == 0; });
  return *Topology::Create(std::move(hosts), {});
}

TEST_F(GpuTest, AReplicaInHostMemoryLeavesThatOfAGpuOnNccl) {
  Start();
  MakeCase({.source = "fsdp=2 on node-0.1-2",
            .source_layout = "[fsdp, ...] chunk",
            .destination = "replica=2 on node-1.0-1",
            .destination_layout = "[...]"});
  *spec_.mutable_topology() = ToProto(WithHostMemory());
  spec_.set_create_destination(true);
  const StorageTiles on_host(*tensors_, Side::kDestination, *tensors_->FindDevice({"node-1", 0}));
  for (const uint8_t version : {1, 2}) {
    ExpectCommits(version);  // which looks for NCCL in every worker's report
    ASSERT_OK_AND_ASSIGN(MemoryClient memory, cluster_->Memory("node-1"));
    ASSERT_OK_AND_ASSIGN(const MappedStorage storage, memory.Open("serving", "node-1.0"));
    std::atomic<int64_t> done_bytes = 0;
    EXPECT_OK(on_host.Check(VersionedValues(manifest_, version), storage.bytes(), done_bytes));
  }
}

// One has all, for the two of the other worker: a broadcast group.
TEST_F(GpuTest, SmallTensorsAreBroadcastWithTheSameResult) {
  manifest_ = TensorsOf(256 << 10);
  Start();
  MakeCase({.source = "x=1 on node-0.1",
            .source_layout = "[...]",
            .destination = "replica=2 on node-1.1-2",
            .destination_layout = "[...]"});
  FillSources(1);
  ASSERT_OK_AND_ASSIGN(const v1::Operation broadcast,
                       Execute(cluster_->controller_address(), spec_));
  ASSERT_EQ(broadcast.state(), v1::OPERATION_STATE_COMMITTED) << broadcast.ShortDebugString();
  ExpectDestinations(1);
  ASSERT_EQ(broadcast.report().broadcast_groups_size(), 1);
  const v1::BroadcastGroup& group = broadcast.report().broadcast_groups(0);
  EXPECT_EQ(group.devices(), "node-0.1,node-1.1-2");
  EXPECT_LT(group.broadcast_seconds(), group.relay_seconds());
  ExpectCommits(2);  // on the communicator that is there
  spec_.set_no_broadcasts(true);
  ExpectCommits(3);
  spec_.set_no_broadcasts(false);
  ExpectCommits(4);
}

// Every tensor of a destination lies somewhere in an allocation of a user process, which keeps
// nothing but the mapping of it.
TEST_F(GpuTest, TensorsArriveInAllocationsThatAreLent) {
  Start();
  MakeCase();
  spec_.mutable_destination()->set_storage("lent");
  spec_.set_binding(v1::BINDING_MODE_IN_PLACE);
  std::vector<LentTiles> lent;
  for (const LiveGpuTiles& destination : destinations_) lent.push_back(Lend(destination));
  for (const uint8_t version : {1, 2}) {
    FillSources(version);
    ASSERT_OK_AND_ASSIGN(const v1::Operation operation,
                         Execute(cluster_->controller_address(), spec_));
    ASSERT_EQ(operation.state(), v1::OPERATION_STATE_COMMITTED) << operation.ShortDebugString();
    for (const LentTiles& tiles : lent) tiles.Expect(manifest_, version);
  }
  spec_.set_binding(v1::BINDING_MODE_SHADOW);
  ASSERT_OK_AND_ASSIGN(const v1::Operation refused, Execute(cluster_->controller_address(), spec_));
  EXPECT_THAT(refused.error(), HasSubstr("expected an operation in place, found shadow"));
}

TEST_F(GpuTest, AProcessThatIsKilledFailsItsReplicaAndTheNextOperationWorks) {
  Start();
  MakeCase();
  ExpectCommits(1);
  FillSources(2);
  RunningReshard running(cluster_->controller_address(), spec_);
  ASSERT_OK(running.WaitUntilRunning());
  const pid_t process = ProcessOf(3);
  ASSERT_NE(process, 0);
  ASSERT_EQ(kill(process, SIGKILL), 0);
  const RealClock clock;
  const absl::Duration begin = clock.Monotonic();
  ASSERT_OK_AND_ASSIGN(const v1::Operation operation, running.Result());
  EXPECT_LE(clock.Monotonic() - begin, kGpuLossMax);
  EXPECT_THAT(operation.error(), HasSubstr(StandInUuid(3)));
  ASSERT_TRUE(WaitUntil(kGpuArriveMax, [] { return ProcessOf(3) != 0; }));
  ASSERT_TRUE(WaitUntil(kGpuArriveMax, [&] {
    const absl::StatusOr<double> up =
        cluster_->Metric("node-1", "crossmesh_worker_gpus", R"(state="up")");
    return up.ok() && *up == 2;
  }));
  // The sources have survived: they are not filled again.
  ASSERT_OK_AND_ASSIGN(const v1::Operation next, Execute(cluster_->controller_address(), spec_));
  ASSERT_EQ(next.state(), v1::OPERATION_STATE_COMMITTED) << next.ShortDebugString();
  ExpectDestinations(2);
}

TEST_F(GpuTest, AWorkerThatWasOutOfSightIsBackWithItsGpus) {
  Start();
  MakeCase();
  ExpectCommits(1);
  cluster_->Signal("node-1", SIGSTOP);
  ASSERT_OK(cluster_->WaitForWorker("node-1", v1::WORKER_STATE_LOST));
  cluster_->Signal("node-1", SIGCONT);
  ASSERT_OK(cluster_->WaitForAllWorkers());
  // Its GPUs' processes have been there all the time, with their communicators.
  ExpectCommits(2);
}

TEST_F(GpuTest, WithoutADriverAWorkerHasHostMemoryAlone) {
  Start("libcrossmesh-no-driver.so");
  ASSERT_OK_AND_ASSIGN(const v1::Worker worker, cluster_->GetWorker("node-0"));
  EXPECT_EQ(worker.devices(), "node-0.0");
  ASSERT_OK_AND_ASSIGN(MemoryClient memory, cluster_->Memory("node-0"));
  EXPECT_OK(memory.Create("training", "node-0.0", 100));
  EXPECT_THAT(memory.CreateOnGpu("training", "node-0.1", 100),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("libcrossmesh-no-driver.so")));
}

}  // namespace
}  // namespace crossmesh
