// Daemons of the release before are replaced by those of this one, one after the other, while
// clients go on.

#include "client/client.h"
#include "client/outcome.h"
#include "common/base/thread.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_folder.h"
#include "tests/live/live_cluster.h"
#include "tests/live/reshard_case.h"
#include "tests/live/running_reshard.h"
#include "tests/reliability/load_cases.h"
#include "tests/reliability/load_client.h"
#include "tests/reliability/pipeline_load.h"
#include "tests/reliability/reshard_load.h"

#include <atomic>
#include <iostream>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>
#include <absl/time/time.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kArrivalMax = absl::Seconds(30);
constexpr double kSlowShare = 0.002;  // of a NIC, so that an operation lasts

class RollingUpgradeTest : public testing::Test {
 protected:
  void SetUp() override {
    if (ReleaseBefore().empty()) GTEST_SKIP() << "no release before: tests/reliability/run has it";
  }

  void Start(std::set<std::string> old_daemons, std::vector<std::string> controller_flags = {}) {
    ASSERT_OK_AND_ASSIGN(cluster_,
                         LiveCluster::Start({.workers = {"node-0", "node-1", "node-2"},
                                             .controller_flags = std::move(controller_flags),
                                             .old_daemons = std::move(old_daemons)}));
  }
  void StartOld() { Start({LiveCluster::kController, "node-0", "node-1", "node-2"}); }

  // Clients ask for reshards and runs of pipelines until `upgrade` is done.
  template <typename Upgrade>
  void UnderLoad(Upgrade upgrade) {
    const LoadEnvironment environment{*cluster_, starts_, violations_, ended_};
    ReshardOptions in_place = BetweenStoragesOf("in-place", TensorsOf(1 << 20));
    in_place.binding = v1::BINDING_MODE_IN_PLACE;
    ReshardLoad shadow(environment, BetweenStoragesOf("reshards", TensorsOf(1 << 20)));
    ReshardLoad overwriting(environment, std::move(in_place));
    PipelineLoad pipelines(environment);
    std::atomic<bool> stop = false;
    std::vector<Thread> threads;
    for (Load* const load : {static_cast<Load*>(&shadow), static_cast<Load*>(&overwriting),
                             static_cast<Load*>(&pipelines)}) {
      threads.emplace_back("load", [&stop, load] { load->Run(stop); });
    }
    upgrade();
    stop = true;
    for (Thread& thread : threads) thread.Join();
    for (Load* const load : {static_cast<Load*>(&shadow), static_cast<Load*>(&overwriting)}) {
      load->Check();
      std::cout << "upgrade, reshards: " << load->Summary() << "\n";
    }
    pipelines.Check();
    std::cout << "upgrade, pipelines: " << pipelines.Summary() << "\n";
    EXPECT_THAT(violations_.found(), testing::IsEmpty());
  }
  void UpgradeWorkers() {
    for (const std::string& worker : cluster_->workers()) {
      starts_.Count(worker);
      ASSERT_OK(cluster_->Stop(worker));
      cluster_->Upgrade(worker);
      ASSERT_OK(cluster_->StartWorker(worker));
      starts_.Count(worker);
      ASSERT_OK(cluster_->WaitForWorker(worker, v1::WORKER_STATE_READY));
      ExpectCommits(absl::StrCat("with-new-", worker));
    }
  }
  void UpgradeController() {
    cluster_->Upgrade(LiveCluster::kController);
    ASSERT_OK(cluster_->StartController());
    ASSERT_OK(cluster_->WaitForAllWorkers());
  }
  // Between storages of its own.
  void ExpectCommits(const std::string& storages) {
    ASSERT_OK_AND_ASSIGN(
        const auto reshard,
        ReshardCase::Create(BetweenStoragesOf(storages, TensorsOf(1 << 20)), *cluster_));
    ExpectCommits(*reshard);
  }
  void ExpectCommits(ReshardCase& reshard) {
    reshard.spec().clear_nic_share();
    ASSERT_OK(reshard.FillSource(2));
    ASSERT_OK_AND_ASSIGN(const v1::Operation operation,
                         Execute(cluster_->controller_address(), reshard.spec()));
    EXPECT_OK(OutcomeOf(operation));
    EXPECT_OK(reshard.CheckAll(2));
  }
  // One that lasts, and that all workers have accepted.
  std::unique_ptr<ReshardCase> BeginSlowly(v1::Operation& begun) {
    absl::StatusOr<std::unique_ptr<ReshardCase>> reshard =
        ReshardCase::Create(BetweenStoragesOf("slow", TensorsOf(64 << 20)), *cluster_);
    EXPECT_OK(reshard.status());
    (*reshard)->spec().set_nic_share(kSlowShare);
    v1::ExecuteReshardRequest request;
    *request.mutable_spec() = (*reshard)->spec();
    request.set_request_id(NewRequestId());
    absl::StatusOr<v1::Operation> operation = cluster_->client().Start(request);
    EXPECT_OK(operation.status());
    begun = *std::move(operation);
    EXPECT_TRUE(WaitUntil(kArrivalMax, [&] {
      const absl::StatusOr<v1::Operation> now = cluster_->client().GetOperation(begun.id());
      return now.ok() && now->state() == v1::OPERATION_STATE_RUNNING;
    }));
    return *std::move(reshard);
  }

  Starts starts_;
  Violations violations_;
  EndedOperations ended_;
  std::unique_ptr<LiveCluster> cluster_;
};

TEST_F(RollingUpgradeTest, OfTheWorkersAndThenTheController) {
  StartOld();
  UnderLoad([this] { UpgradeWorkers(); });
  ASSERT_OK(cluster_->Stop(LiveCluster::kController));
  UpgradeController();
  ExpectCommits("after");
}

TEST_F(RollingUpgradeTest, OfTheControllerAndThenTheWorkers) {
  StartOld();
  ASSERT_OK(cluster_->Stop(LiveCluster::kController));
  UpgradeController();
  UnderLoad([this] { UpgradeWorkers(); });
  ExpectCommits("after");
}

// That of the release before keeps nothing, so the next one knows of no operation that ran.
TEST_F(RollingUpgradeTest, WhatRanUnderTheControllerBeforeIsGivenUpAndLeavesTheOldVersion) {
  StartOld();
  v1::Operation begun;
  const auto reshard = BeginSlowly(begun);
  cluster_->Kill(LiveCluster::kController);  // asked to stop, it lets operations end
  UpgradeController();
  EXPECT_THAT(cluster_->client().GetOperation(begun.id()),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(begun.id())));
  EXPECT_OK(reshard->CheckAll(0));
  ExpectCommits(*reshard);
}

// Workers of the release before cannot be handed from one controller to the next.
TEST_F(RollingUpgradeTest, ATaskOfAnOlderWorkerIsNotAdoptedAndItsOperationFailsWithTheReason) {
  const TemporaryFolder state;
  Start({"node-0", "node-1", "node-2"}, {"--state-dir", state.PathOf("state")});
  v1::Operation begun;
  const auto reshard = BeginSlowly(begun);
  cluster_->Kill(LiveCluster::kController);
  ASSERT_OK(cluster_->StartController());
  ASSERT_OK_AND_ASSIGN(const v1::Operation ended,
                       cluster_->client().Watch(begun.id(), [](const v1::Operation&) {}));
  EXPECT_EQ(ended.state(), v1::OPERATION_STATE_FAILED);
  EXPECT_THAT(ended.error(), HasSubstr("another controller may take up"));
  EXPECT_OK(reshard->CheckAll(0));
  ASSERT_OK(cluster_->WaitForAllWorkers());
  ExpectCommits(*reshard);
}

}  // namespace
}  // namespace crossmesh
