// What a worker holds in memory, and what it refuses to hold.

#include "worker/worker_devices.h"

#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/event_loop/event_loop.h"
#include "common/mesh/mesh.h"
#include "common/metrics/worker_metrics.h"
#include "common/testing/is_refused.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_folder.h"
#include "worker/agent/testing/fake_controller.h"
#include "worker/executor/executor.h"
#include "worker/memory/arena.h"
#include "worker/memory/storage_table.h"
#include "worker/transport/testing/inprocess_fabric.h"
#include "worker/transport/testing/inprocess_transport.h"
#include "worker/worker.h"
#include "worker/worker_options.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kMiB = int64_t{1} << 20;

class WorkerDevicesTest : public testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<Worker>> Create(int64_t memory_max = 0) {
    return Worker::Create({.name = "w",
                           .devices = *ParseDevices("a.0-1"),
                           .controllers = {controller_->address()},
                           .listen = Address("w"),
                           .memory_max = memory_max});
  }
  std::string Address(const std::string& server) const {
    return absl::StrCat("unix:", folder_.PathOf(server));
  }

  const TemporaryFolder folder_;
  const std::unique_ptr<FakeController> controller_ = *FakeController::Start(Address("controller"));
};

TEST_F(WorkerDevicesTest, StoragesAreOfItsOwnDevices) {
  ASSERT_OK_AND_ASSIGN(const auto worker, Create());
  EXPECT_OK(worker->storages().Create({"weights", {"a", 1}}, 1));
  for (const DeviceId& device : {DeviceId{"b", 0}, DeviceId{"a", 2}}) {
    EXPECT_THAT(
        worker->storages().Create({"weights", device}, 1),
        StatusIs(absl::StatusCode::kInvalidArgument,
                 AllOf(HasSubstr("storage \"weights\""), HasSubstr("which has a.0, a.1, found"),
                       HasSubstr(absl::StrCat("found ", ToString(device))))));
  }
}

TEST_F(WorkerDevicesTest, StoragesHaveNamesThatTheApiHas) {
  ASSERT_OK_AND_ASSIGN(const auto worker, Create());
  for (const std::string& name : {std::string("../../x y\n"), std::string(64, 'x')}) {
    EXPECT_THAT(worker->storages().Create({name, {"a", 0}}, 1), IsRefused("storage name"));
  }
}

TEST_F(WorkerDevicesTest, MemoryHasALimitForStoragesAndTheirShadows) {
  // Of which staging takes 32.
  ASSERT_OK_AND_ASSIGN(const auto worker, Create(64 * kMiB));
  StorageTable& storages = worker->storages();
  const StorageKey key = {"weights", {"a", 0}};
  EXPECT_THAT(storages.Create(key, 32 * kMiB + 1),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("weights"), HasSubstr(absl::StrCat(64 * kMiB)),
                             HasSubstr(absl::StrCat("found ", 32 * kMiB, " in use")))));
  ASSERT_OK(storages.Create(key, 20 * kMiB));
  EXPECT_THAT(storages.LeaseForWriting(key, 20 * kMiB, {.shadow = true}),
              StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_OK(storages.Create({"weights", {"a", 1}}, 12 * kMiB));
}

TEST_F(WorkerDevicesTest, ALimitBelowWhatStagingTakesIsRefused) {
  EXPECT_THAT(Create(kMiB), IsRefused("--memory-max"));
}

TEST_F(WorkerDevicesTest, WithoutALimitNoMoreThanTheMachineHas) {
  ASSERT_OK_AND_ASSIGN(const auto worker, Create());
  EXPECT_THAT(worker->storages().Create({"weights", {"a", 0}}, int64_t{1} << 46),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("--memory-max")));
}

// Without a worker around them: the loops do not run.
class WorkerArraysTest : public testing::Test {
 protected:
  WorkerArraysTest() { CHECK_OK(executor_->Attach(*transport_)); }
  ~WorkerArraysTest() override { devices_.StopLending(); }

  std::shared_ptr<Arena> Make(int64_t bytes) {
    auto arrays = devices_.MakeArrays({"a", 1}, ByteCount(bytes));
    EXPECT_OK(arrays);
    return *std::move(arrays);
  }

  const RealClock clock_;
  const WorkerOptions options_ = {
      .name = "w", .devices = *ParseDevices("a.0-1"), .memory_max = 64 * kMiB};
  WorkerMetrics metrics_;
  const std::unique_ptr<EventLoop> data_ = *EventLoop::Create(clock_, {});
  const std::unique_ptr<EventLoop> memory_ = *EventLoop::Create(clock_, {});
  const std::unique_ptr<Executor> executor_ = Executor::Create(*data_, {});
  InProcessFabric fabric_;
  const std::unique_ptr<InProcessTransport> transport_ =
      *InProcessTransport::Create(fabric_, *executor_);
  WorkerDevices devices_{options_,
                         {.data = *data_,
                          .memory = *memory_,
                          .transport = *transport_,
                          .clock = clock_,
                          .metrics = metrics_}};
};

TEST_F(WorkerArraysTest, ArraysAreKeptAndOfTheBudgetOnlyWhileATaskUsesThem) {
  const int64_t before = devices_.memory().used_bytes();
  std::shared_ptr<Arena> arrays = Make(kMiB);
  EXPECT_EQ(devices_.memory().used_bytes(), before + kMiB);
  arrays->bytes()[5] = std::byte{42};
  arrays.reset();
  EXPECT_EQ(devices_.memory().used_bytes(), before);
  arrays = Make(kMiB);
  EXPECT_EQ(arrays->bytes()[5], std::byte{42});
  EXPECT_EQ(devices_.memory().used_bytes(), before + kMiB);
}

TEST_F(WorkerArraysTest, NoMoreIsKeptThanASixteenthOfTheBudget) {
  for (const int64_t bytes : {4 * kMiB, 4 * kMiB + 1}) {
    Make(bytes)->bytes()[5] = std::byte{42};
    EXPECT_EQ(Make(bytes)->bytes()[5], std::byte(bytes == 4 * kMiB ? 42 : 0));
  }
}

TEST_F(WorkerArraysTest, WhatIsKeptIsRefusedWhereTheBudgetHasNoRoom) {
  Make(4 * kMiB);
  const std::shared_ptr<Arena> most = Make(29 * kMiB);
  EXPECT_THAT(devices_.MakeArrays({"a", 0}, ByteCount(4 * kMiB)),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("crossmesh:steps:a.0"), HasSubstr("--memory-max"))));
}

TEST_F(WorkerArraysTest, ArraysAreOfItsOwnDevices) {
  EXPECT_THAT(devices_.MakeArrays({"b", 0}, ByteCount(1)), IsRefused("found b.0"));
}

}  // namespace
}  // namespace crossmesh
