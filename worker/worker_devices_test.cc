// What a worker holds in memory, and what it refuses to hold.

#include "common/base/check.h"
#include "common/mesh/mesh.h"
#include "common/testing/is_refused.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_folder.h"
#include "worker/agent/testing/fake_controller.h"
#include "worker/memory/storage_table.h"
#include "worker/worker.h"

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

}  // namespace
}  // namespace crossmesh
