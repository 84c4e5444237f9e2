#include "worker/worker.h"

#include "common/base/check.h"
#include "common/base/mutex.h"
#include "common/base/thread.h"
#include "common/plan/plan.h"
#include "common/plan/testing/chain_plan.h"
#include "common/plan/worker_part.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_folder.h"
#include "common/wire/worker_part_codec.h"
#include "worker/agent/testing/fake_controller.h"
#include "worker/memory/storage_table.h"
#include "worker/testing/execution.h"
#include "worker/transport/testing/system_filter.h"

#include <cerrno>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/seccomp.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using Seen = FakeController::Seen;

constexpr int64_t kFloats = 1 << 20;
constexpr int64_t kHalfBytes = kFloats / 2 * 4;

// 4 MiB, halves of which a.0 (rank 0) and a.1 (rank 1) hold, to b.0 (rank 2) and b.1 (rank 3).
Plan MakePlan() {
  return ChainPlan(TensorOf(absl::StrCat("[", kFloats, "]: x=2 on a.0-1 [x] -> x=2 on b.0-1 [-]")),
                   {"a.0 > b.0 > b.1", "a.1 > b.1 > b.0"});
}

// Workers "wa" of a.0-1 and "wb" of b.0-1 with a controller that only knows their sessions; the
// test itself starts tasks.
class WorkerTest : public ::testing::Test {
 protected:
  WorkerTest() : plan_(MakePlan()) {
    controller_ = *FakeController::Start(Address("controller"));
    auto parts = CutParts(plan_, {*ParseDevices("a.0-1"), *ParseDevices("b.0-1")});
    CHECK_OK(parts);
    parts_ = *std::move(parts);
  }

  std::string Address(const std::string& server) const {
    return absl::StrCat("unix:", folder_.PathOf(server));
  }
  std::unique_ptr<Worker> StartWorker(const std::string& name, const std::string& devices,
                                      std::function<void()> on_drained = nullptr) {
    auto worker = Worker::Create({.name = name,
                                  .devices = *ParseDevices(devices),
                                  .controllers = {controller_->address()},
                                  .listen = Address(name),
                                  .on_drained = std::move(on_drained)});
    CHECK_OK(worker);
    EXPECT_TRUE(controller_->WaitUntil(name, [](const Seen& s) { return s.heartbeats >= 1; }));
    return *std::move(worker);
  }
  void StartBoth() {
    a_ = StartWorker("wa", "a.0-1");
    b_ = StartWorker("wb", "b.0-1");
  }
  void MakeSources() {
    for (int32_t i = 0; i < 2; ++i) {
      const StorageKey key{"weights", {"a", i}};
      ASSERT_OK(a_->storages().Create(key, kHalfBytes));
      const auto bytes = a_->storages().Open(key)->arena->bytes();
      for (int64_t at = 0; at < kHalfBytes; ++at) {
        bytes[at] = static_cast<std::byte>((i * kHalfBytes + at) * 2654435761 >> 13);
      }
    }
  }
  v1::ExecuteRequest StartOf(uint64_t operation, const WorkerPart& part, bool create = true) const {
    v1::ExecuteRequest request;
    v1::ExecuteRequest::Start& start = *request.mutable_start();
    start.set_operation(operation);
    start.set_operation_id(absl::StrCat("op-", operation));
    start.set_epoch(7);
    start.set_attempt(1);
    start.set_token("0123456789abcdef");
    start.set_part_digest(part.digest().ToString());
    start.set_source_storage("weights");
    start.set_destination_storage("replica");
    start.set_create_destination(create);
    start.set_checksums(true);
    start.mutable_deadline()->set_seconds(15);
    start.mutable_stall_limit()->set_seconds(5);
    for (const char* name : {"wa", "wb"}) {
      v1::ExecuteRequest::Peer& peer = *start.add_peers();
      peer.set_worker(name);
      peer.set_data_address(controller_->seen(name).registration.data_address());
      const int32_t first = name == std::string("wa") ? 0 : 2;
      peer.add_devices(first);
      peer.add_devices(first + 1);
    }
    return request;
  }
  std::shared_ptr<Execution> Execute(const Worker& worker, int part, uint64_t operation = 1) const {
    return Execution::Open(worker, StartOf(operation, parts_[part]),
                           ToProto(parts_[part]).SerializeAsString());
  }
  static void Resolve(Execution& execution) {
    v1::ExecuteRequest request;
    request.mutable_resolve()->add_devices(2);
    request.mutable_resolve()->add_devices(3);
    request.mutable_resolve()->set_commit(true);
    execution.Send(std::move(request));
  }
  static absl::Status Acknowledge(Execution& execution) {
    v1::ExecuteRequest request;
    request.mutable_acknowledge();
    execution.Send(std::move(request));
    return execution.WaitForEnd();
  }
  void ExpectDestinationsEqualSources() {
    for (int32_t i = 0; i < 2; ++i) {
      const auto destination = b_->storages().Open({"replica", {"b", i}})->arena->bytes();
      for (int32_t half = 0; half < 2; ++half) {
        const auto source = a_->storages().Open({"weights", {"a", half}})->arena->bytes();
        EXPECT_EQ(std::memcmp(destination.data() + half * kHalfBytes, source.data(), kHalfBytes), 0)
            << "half " << half << " of b." << i;
      }
    }
  }
  // After StartBoth.
  void ExpectPlanSucceeds() {
    MakeSources();
    const auto a = Execute(*a_, 0);
    const auto b = Execute(*b_, 1);
    ASSERT_TRUE(a->WaitFor(v1::ExecuteResponse::kReport));
    ASSERT_TRUE(b->WaitFor(v1::ExecuteResponse::kReport));
    const v1::TaskReport& report = b->Find(v1::ExecuteResponse::kReport)->report();
    EXPECT_EQ(report.code(), 0) << report.message();
    EXPECT_EQ(report.received_bytes(), 2 * kHalfBytes);
    EXPECT_EQ(report.copied_bytes(), 2 * kHalfBytes);
    Resolve(*b);
    ASSERT_TRUE(b->WaitFor(v1::ExecuteResponse::kResolved));
    EXPECT_EQ(b->Find(v1::ExecuteResponse::kResolved)->resolved().code(), 0);
    ExpectDestinationsEqualSources();
    EXPECT_OK(Acknowledge(*a));
    EXPECT_OK(Acknowledge(*b));
  }

  const TemporaryFolder folder_;
  const Plan plan_;
  std::vector<WorkerPart> parts_;
  std::unique_ptr<FakeController> controller_;
  std::unique_ptr<Worker> a_;
  std::unique_ptr<Worker> b_;
};

TEST_F(WorkerTest, TwoWorkersExecuteAPlanAndCommit) {
  StartBoth();
  ExpectPlanSucceeds();
}

TEST_F(WorkerTest, WhereMemoryOfOthersMayNotBeMappedBytesGoOverTcp) {
  Thread("filtered", [this] {
    FilterSharedMappings(SECCOMP_RET_ERRNO | EPERM);  // of all threads of both workers
    StartBoth();
  }).Join();
  ExpectPlanSucceeds();
}

TEST_F(WorkerTest, ATaskOutlivesItsCallerWhoMayComeBack) {
  StartBoth();
  MakeSources();
  const auto gone = Execute(*b_, 1);
  ASSERT_TRUE(gone->WaitFor(v1::ExecuteResponse::kAccepted));
  gone->Cancel();
  EXPECT_THAT(gone->WaitForEnd(), StatusIs(absl::StatusCode::kCancelled));
  const auto a = Execute(*a_, 0);
  ASSERT_TRUE(a->WaitFor(v1::ExecuteResponse::kReport));

  const auto b = Execute(*b_, 1);
  ASSERT_TRUE(b->WaitFor(v1::ExecuteResponse::kReport));
  EXPECT_NE(b->Find(v1::ExecuteResponse::kAccepted), nullptr);
  EXPECT_EQ(b->Find(v1::ExecuteResponse::kNeedPart), nullptr);
  Resolve(*b);
  ASSERT_TRUE(b->WaitFor(v1::ExecuteResponse::kResolved));
  ExpectDestinationsEqualSources();
  EXPECT_OK(Acknowledge(*b));
}

TEST_F(WorkerTest, NamesTheStorageThatIsMissing) {
  StartBoth();
  const auto a = Execute(*a_, 0);
  EXPECT_THAT(a->WaitForEnd(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                        AllOf(HasSubstr("source storage \"weights\" of device a.0"),
                                              HasSubstr(absl::StrCat(kHalfBytes)))));
  const auto b = Execution::Open(*b_, StartOf(2, parts_[1], /*create=*/false),
                                 ToProto(parts_[1]).SerializeAsString());
  EXPECT_THAT(b->WaitForEnd(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("destination storage \"replica\" of device b.0")));
}

TEST_F(WorkerTest, TellsItsProgressInHeartbeats) {
  StartBoth();
  const auto b = Execute(*b_, 1);  // waits for a worker that was not started
  ASSERT_TRUE(b->WaitFor(v1::ExecuteResponse::kAccepted));
  EXPECT_TRUE(controller_->WaitUntil("wb", [](const Seen& s) {
    return s.heartbeat.tasks_size() == 1 && s.heartbeat.tasks(0).operation_id() == "op-1" &&
           // Two storages of both halves, each with the shadow that it receives into.
           s.heartbeat.memory_bytes() == 8 * kHalfBytes;
  }));
}

TEST_F(WorkerTest, LeavesPolitelyWhenItIsStopped) {
  StartBoth();
  a_->Stop(absl::Seconds(5));
  EXPECT_TRUE(controller_->seen("wa").left);
}

TEST_F(WorkerTest, StoppingCancelsWhatRunsBehindTheDrainTimeout) {
  StartBoth();
  const auto b = Execute(*b_, 1);  // waits for a worker that was not started
  ASSERT_TRUE(b->WaitFor(v1::ExecuteResponse::kAccepted));
  b_->Stop(absl::Milliseconds(10));
  ASSERT_TRUE(b->WaitFor(v1::ExecuteResponse::kReport));
  EXPECT_EQ(b->Find(v1::ExecuteResponse::kReport)->report().code(),
            static_cast<int>(absl::StatusCode::kCancelled));
  EXPECT_TRUE(controller_->seen("wb").left);
}

TEST_F(WorkerTest, ADrainRefusesNewTasksAndTellsWhenItIsDone) {
  Mutex mutex;
  CondVar changed;
  bool drained = false;
  a_ = StartWorker("wa", "a.0-1");
  b_ = StartWorker("wb", "b.0-1", [&] {
    MutexLock lock(mutex);
    drained = true;
    changed.SignalAll();
  });
  MakeSources();
  const auto b = Execute(*b_, 1);
  ASSERT_TRUE(b->WaitFor(v1::ExecuteResponse::kAccepted));
  controller_->SendDrain("wb");
  const auto a = Execute(*a_, 0);
  ASSERT_TRUE(b->WaitFor(v1::ExecuteResponse::kReport));
  Resolve(*b);
  EXPECT_OK(Acknowledge(*b));
  {
    MutexLock lock(mutex);
    while (!drained) ASSERT_FALSE(changed.WaitFor(mutex, absl::Seconds(20)));
  }
  EXPECT_THAT(Execute(*b_, 1, 2)->WaitForEnd(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("wb")));
  b_->Stop(absl::Seconds(1));
}

TEST_F(WorkerTest, ADrainThatIsTakenBackIsNoneUnlessTheWorkerStops) {
  StartBoth();
  controller_->SendDrain("wb");
  ASSERT_TRUE(controller_->WaitUntil("wb", [](const auto& s) { return s.heartbeat.draining(); }));
  EXPECT_FALSE(controller_->seen("wb").heartbeat.leaving());
  controller_->SendUndrain("wb");
  ASSERT_TRUE(controller_->WaitUntil("wb", [](const auto& s) { return !s.heartbeat.draining(); }));
  const auto b = Execute(*b_, 1);
  EXPECT_TRUE(b->WaitFor(v1::ExecuteResponse::kAccepted));
  b_->Stop(absl::Milliseconds(10));
  EXPECT_TRUE(controller_->seen("wb").left);
}

TEST_F(WorkerTest, StoragesThatWereLeftInPartAreToldWhileNothingWritesThem) {
  b_ = StartWorker("wb", "b.0-1");
  const StorageKey key{"serving", {"b", 1}};
  ASSERT_OK(b_->storages().Create(key, 64));
  absl::StatusOr<StorageTable::Lease> lease =
      b_->storages().LeaseForWriting(key, 64, {.shadow = false});
  ASSERT_OK(lease.status());
  lease->BeginWriting();
  const int before = controller_->seen("wb").heartbeats;
  ASSERT_TRUE(
      controller_->WaitUntil("wb", [before](const auto& s) { return s.heartbeats >= before + 2; }));
  EXPECT_EQ(controller_->seen("wb").heartbeat.dirty_storages_size(), 0);
  {
    const StorageTable::Lease ended = *std::move(lease);
  }
  ASSERT_TRUE(controller_->WaitUntil("wb", [](const auto& s) {
    return s.heartbeat.dirty_storages_size() == 1 &&
           s.heartbeat.dirty_storages(0) == "serving on b.1";
  }));
}

TEST_F(WorkerTest, RefusesOptionsThatCannotWork) {
  EXPECT_THAT(Worker::Create({.devices = {{"a", 0}}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("name")));
  EXPECT_THAT(Worker::Create({.name = "w"}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("device")));
  EXPECT_THAT(Worker::Create({.name = "w", .devices = {{"a", 0}}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("controller")));
  a_ = StartWorker("wa", "a.0");
  EXPECT_THAT(Worker::Create({.name = "wa",
                              .devices = {{"a", 0}},
                              .controllers = {controller_->address()},
                              .listen = a_->execution_address()}),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

}  // namespace
}  // namespace crossmesh
