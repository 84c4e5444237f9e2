// Who gets the name of a worker, as the registry says.

#include "common/base/fake_clock.h"
#include "common/testing/status_matchers.h"
#include "controller/membership/name_guard.h"
#include "controller/membership/testing/joined_worker.h"
#include "controller/membership/worker_registry.h"

#include <cstdint>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using testing::HasSubstr;

class LossListener final : public DeafMembershipListener {
 public:
  void OnWorkerLost(const WorkerRecord& /*worker*/, const absl::Status& why) override {
    lost = std::string(why.message());
  }

  std::string lost;  // why, the last time
};

class WorkerNamesTest : public testing::Test {
 protected:
  // Of w0.
  static WorkerRecord Record(uint64_t incarnation) {
    return RecordOf("w0", {{"a", 0}}, incarnation);
  }

  FakeClock clock_;
  LossListener listener_;
  WorkerRegistry registry_{WorkerRegistry::Options{}, clock_, listener_};
};

TEST_F(WorkerNamesTest, AnEvictedProcessIsLostAtOnceAndAnotherOneGetsItsName) {
  Join(registry_, Record(1));
  EXPECT_OK(registry_.Evict("w0"));
  EXPECT_EQ(registry_.Get("w0")->state, WorkerState::kLost);
  EXPECT_EQ(listener_.lost, "it was evicted");
  EXPECT_THAT(registry_.Register(Record(1)),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("start it again")));
  Join(registry_, Record(2));
  EXPECT_EQ(registry_.Get("w0")->state, WorkerState::kReady);
  EXPECT_THAT(registry_.Evict("w1"), StatusIs(absl::StatusCode::kNotFound, HasSubstr("w1")));
}

TEST_F(WorkerNamesTest, TwoProcessesThatTakeTurnsGetTheNameNoMoreUntilOneHasStopped) {
  const uint64_t first = Join(registry_, Record(1));
  registry_.StreamEnded("w0", first);
  const uint64_t second = Join(registry_, Record(2));
  EXPECT_EQ(registry_.Get("w0")->problem, "");
  registry_.StreamEnded("w0", second);
  EXPECT_THAT(registry_.Register(Record(1)),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("take turns")));
  registry_.SessionEnded("w0", second, /*left=*/false);
  EXPECT_THAT(registry_.Register(Record(2)),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("take turns")));
  EXPECT_THAT(registry_.List().front().problem, HasSubstr("take turns"));
  clock_.Advance(NameGuard::kQuarantine);
  EXPECT_EQ(registry_.Get("w0")->problem, "");
  Join(registry_, Record(2));
  EXPECT_EQ(registry_.Get("w0")->state, WorkerState::kReady);
}

}  // namespace
}  // namespace crossmesh
