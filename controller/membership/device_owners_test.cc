// Which workers own devices, and what is said of one that has none.

#include "common/base/fake_clock.h"
#include "common/testing/status_matchers.h"
#include "controller/membership/testing/joined_worker.h"
#include "controller/membership/worker_registry.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using testing::HasSubstr;

class DeviceOwnersTest : public testing::Test {
 protected:
  FakeClock clock_;
  DeafMembershipListener listener_;
  WorkerRegistry registry_{WorkerRegistry::Options{}, clock_, listener_};
};

TEST_F(DeviceOwnersTest, OwnersAreEachNamedOnce) {
  Join(registry_, RecordOf("w1", {{"b", 0}}));
  Join(registry_, RecordOf("w0", {{"a", 0}, {"a", 1}}));
  const std::vector<DeviceId> devices = {{"a", 1}, {"b", 0}, {"a", 0}};
  ASSERT_OK_AND_ASSIGN(const std::vector<WorkerRecord> owners, registry_.OwnersOf(devices));
  ASSERT_EQ(owners.size(), 2u);
  EXPECT_EQ(owners[0].name, "w0");
  EXPECT_EQ(owners[1].name, "w1");
}

TEST_F(DeviceOwnersTest, ADeviceWithoutALiveWorkerIsNamed) {
  registry_.SessionEnded("w0", Join(registry_, RecordOf("w0", {{"a", 0}})), /*left=*/false);
  EXPECT_THAT(registry_.OwnersOf(std::vector<DeviceId>{{"a", 0}}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("a.0")));
}

TEST_F(DeviceOwnersTest, WhileWorkersMayComeBackADeviceWithoutOneIsOnlyUnavailable) {
  registry_.AwaitReturns(absl::Seconds(10));
  const std::vector<DeviceId> devices = {{"a", 0}};
  clock_.Advance(absl::Seconds(9));
  EXPECT_THAT(registry_.OwnersOf(devices),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("a.0")));
  Join(registry_, RecordOf("w0", {{"a", 0}}));
  EXPECT_OK(registry_.OwnersOf(devices));
  ASSERT_OK(registry_.Drain("w0"));
  EXPECT_THAT(registry_.OwnersOf(devices), StatusIs(absl::StatusCode::kFailedPrecondition));
  clock_.Advance(absl::Seconds(1));
  EXPECT_THAT(registry_.OwnersOf(std::vector<DeviceId>{{"b", 0}}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("b.0")));
}

TEST_F(DeviceOwnersTest, ADrainingWorkerTakesNoNewWork) {
  Join(registry_, RecordOf("w0", {{"a", 0}}));
  ASSERT_OK(registry_.Drain("w0"));
  EXPECT_THAT(registry_.OwnersOf(std::vector<DeviceId>{{"a", 0}}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("draining")));
  EXPECT_THAT(registry_.Drain("w1"), StatusIs(absl::StatusCode::kNotFound, HasSubstr("w1")));
}

TEST_F(DeviceOwnersTest, WhileAWorkerMayComeBackItIsNotSaidToBeNone) {
  registry_.AwaitReturns(absl::Seconds(10));
  EXPECT_THAT(registry_.Drain("w0"), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("w0")));
  EXPECT_THAT(registry_.Evict("w0"), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("w0")));
  // It was here, and is lost.
  registry_.SessionEnded("w1", Join(registry_, RecordOf("w1", {{"b", 0}})), /*left=*/false);
  EXPECT_THAT(registry_.Drain("w1"), StatusIs(absl::StatusCode::kNotFound, HasSubstr("w1")));
  clock_.Advance(absl::Seconds(10));
  EXPECT_THAT(registry_.Drain("w0"), StatusIs(absl::StatusCode::kNotFound, HasSubstr("w0")));
}

TEST_F(DeviceOwnersTest, AWorkerThatIsUndrainedBeforeItHeardOfADrainTakesTasksAtOnce) {
  Join(registry_, RecordOf("w0", {{"a", 0}}));
  ASSERT_OK(registry_.Drain("w0"));
  ASSERT_OK(registry_.Undrain("w0"));
  EXPECT_OK(registry_.OwnersOf(std::vector<DeviceId>{{"a", 0}}));
  EXPECT_OK(registry_.Undrain("w0"));
  EXPECT_THAT(registry_.Undrain("w1"), StatusIs(absl::StatusCode::kNotFound, HasSubstr("w1")));
}

TEST_F(DeviceOwnersTest, AWorkerThatDrainsTakesTasksAgainWhenItSaysSo) {
  const std::vector<DeviceId> devices = {{"a", 0}};
  const uint64_t session = Join(registry_, RecordOf("w0", devices));
  ASSERT_OK(registry_.Drain("w0"));
  ASSERT_TRUE(registry_.Beat("w0", session, {.draining = true}));
  ASSERT_OK(registry_.Undrain("w0"));
  EXPECT_THAT(registry_.OwnersOf(devices),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("draining")));
  ASSERT_TRUE(registry_.Beat("w0", session, {}));
  EXPECT_OK(registry_.OwnersOf(devices));
  // Of the process that had been asked, and is so no more.
  Join(registry_, RecordOf("w0", devices));
  EXPECT_OK(registry_.OwnersOf(devices));
}

TEST_F(DeviceOwnersTest, AWorkerThatLeavesOfItsOwnIsNotUndrained) {
  const uint64_t session = Join(registry_, RecordOf("w0", {{"a", 0}}));
  ASSERT_TRUE(registry_.Beat("w0", session, {.draining = true, .leaving = true}));
  EXPECT_THAT(registry_.Undrain("w0"),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("of its own")));
}

}  // namespace
}  // namespace crossmesh
