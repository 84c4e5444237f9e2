// Cancelling at any moment.

#include "client/pause.h"
#include "common/testing/status_matchers.h"
#include "tests/live/live_cluster.h"
#include "tests/live/reshard_case.h"
#include "tests/live/running_reshard.h"

#include <array>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <random>
#include <string>

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;

uint32_t Seed() {
  uint32_t seed = std::random_device()();
  if (const char* given = std::getenv("CROSSMESH_TEST_SEED")) {
    EXPECT_TRUE(absl::SimpleAtoi(given, &seed)) << given;
  }
  std::cout << "CROSSMESH_TEST_SEED=" << seed << "\n";
  return seed;
}

class CancelTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(cluster_, LiveCluster::Start({.workers = {"node-0", "node-1", "node-2"}}));
    ASSERT_OK_AND_ASSIGN(case_, ReshardCase::Create({.manifest = TensorsOf(128 << 20)}, *cluster_));
  }

  // Each replica is wholly what the operation says it is: `version` where it committed, and what it
  // was before elsewhere.
  void ExpectWhole(const v1::Operation& operation, uint8_t version) {
    for (int i = 0; i < 2; ++i) {
      const bool committed = operation.replicas_size() == 2 &&
                             operation.replicas(i).state() == v1::REPLICA_STATE_COMMITTED;
      if (committed) versions_[i] = version;
      EXPECT_OK(case_->Check(absl::StrCat("node-", i + 1), versions_[i]))
          << operation.ShortDebugString();
    }
  }

  std::unique_ptr<LiveCluster> cluster_;
  std::unique_ptr<ReshardCase> case_;
  std::array<uint8_t, 2> versions_ = {0, 0};  // of node-1 and node-2
};

TEST_F(CancelTest, AtRandomMomentsLeavesTheOldVersionOrTheNewOne) {
  std::mt19937 random(Seed());
  int cancelled = 0;
  for (uint8_t version = 2; version < 12; ++version) {
    ASSERT_OK(case_->FillSource(version));
    RunningReshard running(cluster_->controller_address(), case_->spec());
    ASSERT_OK_AND_ASSIGN(const std::string id, running.WaitForId());
    Pause(absl::Milliseconds(random() % 250));
    for (const char* reason : {"the test says so", "and says it again"}) {
      const absl::Status status = cluster_->client().CancelOperation(id, reason);
      // It may have ended by then.
      if (absl::IsFailedPrecondition(status)) continue;
      ASSERT_OK(status);
    }
    ASSERT_OK_AND_ASSIGN(const v1::Operation operation, running.Result());
    switch (operation.state()) {
      case v1::OPERATION_STATE_COMMITTED:
        break;
      case v1::OPERATION_STATE_CANCELLED:
      case v1::OPERATION_STATE_PARTIAL:  // one replica was committing already
        ++cancelled;
        EXPECT_THAT(operation.error(), HasSubstr("the test says so"));
        break;
      default:
        ADD_FAILURE() << operation.ShortDebugString();
    }
    ExpectWhole(operation, version);
  }
  std::cout << cancelled << " of 10 were cancelled before they ended\n";
  EXPECT_OK(case_->FillSource(100));
  ASSERT_OK_AND_ASSIGN(const v1::Operation last,
                       Execute(cluster_->controller_address(), case_->spec()));
  EXPECT_EQ(last.state(), v1::OPERATION_STATE_COMMITTED) << last.ShortDebugString();
  EXPECT_OK(case_->CheckAll(100));
}

TEST_F(CancelTest, WhileBytesMoveEndsCancelled) {
  RunningReshard running(cluster_->controller_address(), case_->spec());
  ASSERT_OK_AND_ASSIGN(const v1::Operation now, running.WaitUntilRunning());
  ASSERT_OK(cluster_->client().CancelOperation(now.id(), "enough"));
  ASSERT_OK_AND_ASSIGN(const v1::Operation operation, running.Result());
  EXPECT_EQ(operation.state(), v1::OPERATION_STATE_CANCELLED) << operation.ShortDebugString();
  ExpectWhole(operation, 1);
  // Once more is no error; an operation that there is not is one.
  EXPECT_OK(cluster_->client().CancelOperation(now.id(), "again"));
  EXPECT_THAT(cluster_->client().CancelOperation("op-00000000000000ff", ""),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("op-00000000000000ff")));
}

}  // namespace
}  // namespace crossmesh
