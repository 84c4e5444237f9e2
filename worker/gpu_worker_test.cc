// A worker with two GPUs of the stand-in and host memory; the test does what a controller would.

#include "common/base/check.h"
#include "common/base/thread.h"
#include "common/plan/plan.h"
#include "common/plan/testing/chain_plan.h"
#include "common/plan/worker_part.h"
#include "common/rpc/channel.h"
#include "common/rpc/status_codec.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_folder.h"
#include "common/wire/communicator_codec.h"
#include "common/wire/worker_part_codec.h"
#include "crossmesh/v1/communicator_service.grpc.pb.h"
#include "worker/agent/testing/fake_controller.h"
#include "worker/gpu/devices/testing/stand_in_gpus.h"
#include "worker/memory/storage_table.h"
#include "worker/testing/execution.h"
#include "worker/worker.h"

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <grpcpp/client_context.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;

using Seen = FakeController::Seen;

constexpr int64_t kGpuFloats = 100'000;
constexpr int64_t kBytes = kGpuFloats * 4;
constexpr uint64_t kEpoch = 7;

// All bytes of one device go to another.
Plan MakePlan(const std::string& from, const std::string& to) {
  return ChainPlan(
      TensorOf(absl::StrCat("[", kGpuFloats, "]: x=1 on ", from, " [-] -> x=1 on ", to, " [-]")),
      {absl::StrCat(from, " > ", to)});
}

std::string Pattern() {
  std::string bytes(kBytes, '\0');
  for (int64_t i = 0; i < kBytes; ++i) bytes[i] = static_cast<char>(i * 7 + i / 251);
  return bytes;
}

class GpuWorkerTest : public testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<Worker>> Create(const std::string& host_devices) {
    WorkerOptions options = {.name = "w",
                             .gpus = gpus_.options.gpus,
                             .controllers = {controller_->address()},
                             .listen = absl::StrCat("unix:", folder_.PathOf("w")),
                             .gpu_process = gpus_.options.process};
    if (!host_devices.empty()) options.devices = *ParseDevices(host_devices);
    return Worker::Create(std::move(options));
  }
  void Start() {
    ASSERT_OK_AND_ASSIGN(worker_, Create("a.0"));
    ASSERT_TRUE(controller_->WaitUntil("w", [](const Seen& s) { return s.heartbeats >= 1; }));
    auto channel = BuildRpcChannel({.address = worker_->execution_address()});
    ASSERT_OK(channel);
    stub_ = v1::CommunicatorService::NewStub(*channel);
  }
  void TearDown() override {
    worker_ = nullptr;
    EXPECT_EQ(gpus_.Violations(), "");
  }

  // One for both GPUs.
  CommunicatorKey KeyOfBoth(uint64_t epoch) {
    CommunicatorKey key = {.ranks = {}, .purpose = "relay", .epoch = epoch};
    const Seen seen = controller_->seen("w");
    for (const v1::Gpu& gpu : seen.registration.gpus()) {
      key.ranks.push_back(*FromProto(gpu.process()));
    }
    return key;
  }
  absl::Status MakeCommunicator(const CommunicatorKey& key) {
    v1::MintCommunicatorIdRequest mint;
    *mint.mutable_rank() = ToProto(key.ranks[0]);
    mint.set_epoch(key.epoch);
    v1::MintCommunicatorIdResponse minted;
    grpc::ClientContext minting;
    const absl::Status status = FromGrpcStatus(stub_->MintCommunicatorId(&minting, mint, &minted));
    if (!status.ok()) return status;
    std::vector<absl::Status> made(key.ranks.size());
    std::vector<Thread> callers;
    for (size_t rank = 0; rank < key.ranks.size(); ++rank) {
      callers.emplace_back("rank", [&, rank] {
        v1::CreateCommunicatorRequest request;
        *request.mutable_key() = ToProto(key);
        request.set_rank(static_cast<int32_t>(rank));
        request.set_ticket(1);
        request.set_id(minted.id());
        request.mutable_timeout()->set_seconds(60);
        v1::CreateCommunicatorResponse response;
        grpc::ClientContext context;
        made[rank] = FromGrpcStatus(stub_->CreateCommunicator(&context, request, &response));
      });
    }
    for (Thread& caller : callers) caller.Join();
    for (const absl::Status& each : made) {
      if (!each.ok()) return each;
    }
    return absl::OkStatus();
  }

  // Without a communicator bytes go through host memory.
  std::shared_ptr<Execution> Execute(const Plan& plan,
                                     const std::optional<CommunicatorKey>& communicator) const {
    auto parts = CutParts(plan, {plan.tensors().devices()});
    CHECK_OK(parts);
    v1::ExecuteRequest request;
    v1::ExecuteRequest::Start& start = *request.mutable_start();
    start.set_operation(1);
    start.set_operation_id("op-1");
    start.set_epoch(kEpoch);
    start.set_attempt(1);
    start.set_token("0123456789abcdef");
    start.set_part_digest(parts->front().digest().ToString());
    start.set_source_storage("weights");
    start.set_destination_storage("replica");
    start.set_create_destination(true);
    start.set_checksums(true);
    start.mutable_deadline()->set_seconds(30);
    start.mutable_stall_limit()->set_seconds(15);
    v1::ExecuteRequest::Peer& peer = *start.add_peers();
    peer.set_worker("w");
    peer.add_devices(0);
    peer.add_devices(1);
    if (communicator.has_value()) {
      v1::ExecuteRequest::Communicator& added = *start.add_communicators();
      *added.mutable_key() = ToProto(*communicator);
      added.add_devices(0);
      added.add_devices(1);
    }
    return Execution::Open(*worker_, std::move(request),
                           ToProto(parts->front()).SerializeAsString());
  }

  // From this device to GPU a.2.
  void ExpectMovesToGpu(const std::string& from,
                        const std::optional<CommunicatorKey>& communicator) {
    const StorageKey key = {.name = "weights", .device = *ParseDevice(from)};
    ASSERT_OK(worker_->storages().Create(key, kBytes));
    const auto source = worker_->storages().Open(key)->arena;
    if (source->device_memory() != nullptr) {
      StandInGpus::Write(*source, Pattern());
    } else {
      std::memcpy(source->bytes().data(), Pattern().data(), kBytes);
    }
    const auto execution = Execute(MakePlan(from, "a.2"), communicator);
    ASSERT_TRUE(execution->WaitFor(v1::ExecuteResponse::kReport));
    const auto& report = execution->Find(v1::ExecuteResponse::kReport)->report();
    EXPECT_EQ(report.code(), 0) << report.message();
    EXPECT_EQ(report.broken_devices_size(), 0);
    v1::ExecuteRequest resolve;
    resolve.mutable_resolve()->add_devices(1);
    resolve.mutable_resolve()->set_commit(true);
    execution->Send(std::move(resolve));
    ASSERT_TRUE(execution->WaitFor(v1::ExecuteResponse::kResolved));
    const auto destination = worker_->storages().Open({"replica", {"a", 2}})->arena;
    EXPECT_TRUE(StandInGpus::Read(*destination) == Pattern());
  }

  const TemporaryFolder folder_;
  StandInGpus gpus_{{"a.1", "a.2"}};
  std::unique_ptr<FakeController> controller_ =
      *FakeController::Start(absl::StrCat("unix:", folder_.PathOf("controller")));
  std::unique_ptr<Worker> worker_;
  std::unique_ptr<v1::CommunicatorService::Stub> stub_;
};

TEST_F(GpuWorkerTest, SaysWhichDevicesAreGpusAndWhichProcessesDriveThem) {
  Start();
  const Seen seen = controller_->seen("w");
  EXPECT_EQ(seen.registration.devices(), "a.0-2");
  ASSERT_EQ(seen.registration.gpus_size(), 2);
  EXPECT_EQ(seen.registration.gpus(1).device(), "a.2");
  EXPECT_EQ(seen.registration.gpus(1).process().gpu(), StandInUuid(1));
  EXPECT_NE(seen.registration.gpus(1).process().incarnation(), 0);
  EXPECT_EQ(seen.heartbeat.gpu_processes_size(), 2);
}

TEST_F(GpuWorkerTest, ExecutesAPlanBetweenItsGpusAndCommits) {
  Start();
  const CommunicatorKey key = KeyOfBoth(kEpoch);
  ASSERT_OK(MakeCommunicator(key));
  ExpectMovesToGpu("a.1", key);
}

TEST_F(GpuWorkerTest, ExecutesAPlanBetweenHostMemoryAndAGpuAndCommits) {
  Start();
  ExpectMovesToGpu("a.0", std::nullopt);
}

TEST_F(GpuWorkerTest, ATaskWithoutItsCommunicatorSaysSoInItsReport) {
  Start();
  ASSERT_OK(worker_->storages().Create({"weights", {"a", 1}}, kBytes));
  const auto execution = Execute(MakePlan("a.1", "a.2"), KeyOfBoth(kEpoch));
  ASSERT_TRUE(execution->WaitFor(v1::ExecuteResponse::kReport));
  const auto& report = execution->Find(v1::ExecuteResponse::kReport)->report();
  EXPECT_EQ(report.code(), static_cast<int>(absl::StatusCode::kNotFound)) << report.message();
  EXPECT_EQ(report.broken_devices_size(), 2);
}

TEST_F(GpuWorkerTest, RefusesToMoveHostMemoryOverACommunicator) {
  Start();
  ASSERT_OK(worker_->storages().Create({"weights", {"a", 0}}, kBytes));
  const auto execution = Execute(MakePlan("a.0", "a.1"), KeyOfBoth(kEpoch));
  EXPECT_THAT(execution->WaitForEnd(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("device a.0: expected a GPU of this worker")));
}

TEST_F(GpuWorkerTest, ObeysControllersOfEarlierEpochsNoMore) {
  Start();
  ASSERT_OK(MakeCommunicator(KeyOfBoth(kEpoch)));
  ASSERT_OK(MakeCommunicator(KeyOfBoth(kEpoch + 1)));
  EXPECT_THAT(MakeCommunicator(KeyOfBoth(kEpoch)), StatusIs(absl::StatusCode::kAborted));
  CommunicatorKey other = KeyOfBoth(kEpoch + 1);
  other.ranks[0].incarnation++;
  EXPECT_THAT(MakeCommunicator(other), StatusIs(absl::StatusCode::kUnavailable));
  other.ranks[0].gpu = "GPU-other";
  EXPECT_THAT(MakeCommunicator(other), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(GpuWorkerTest, WithoutADriverItHasHostMemoryAlone) {
  gpus_.options.process.driver_library = "libcrossmesh-no-driver.so";
  Start();
  EXPECT_EQ(controller_->seen("w").registration.devices(), "a.0");
  EXPECT_EQ(controller_->seen("w").registration.gpus_size(), 0);
  EXPECT_THAT(worker_->storages().Create({"weights", {"a", 1}}, kBytes),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("libcrossmesh-no-driver.so")));
}

TEST_F(GpuWorkerTest, WithoutADriverAndHostMemoryItEndsWithThatReason) {
  gpus_.options.process.driver_library = "libcrossmesh-no-driver.so";
  EXPECT_THAT(Create(""), StatusIs(absl::StatusCode::kFailedPrecondition,
                                   HasSubstr("libcrossmesh-no-driver.so")));
}

}  // namespace
}  // namespace crossmesh
