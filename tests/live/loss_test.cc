// Workers that are killed or stopped in the middle of an operation.

#include "common/base/clock.h"
#include "common/testing/random_cases.h"
#include "common/testing/status_matchers.h"
#include "tests/live/live_cluster.h"
#include "tests/live/reshard_case.h"
#include "tests/live/running_reshard.h"

#include <csignal>
#include <iostream>
#include <memory>
#include <string>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kBytes = 256 << 20;
constexpr absl::Duration kArriveMax = absl::Seconds(30);
// From the signal that a worker gets to the failure of its replica at a client. A machine that has
// nothing else to do needs one second (target R9), which tests/reliability/run asks for.
absl::Duration LossMax() {
  return absl::Milliseconds(FromEnvironment("CROSSMESH_LOSS_MAX_MS", 2000));
}

class LossTest : public testing::Test {
 protected:
  // node-0 sends to two replicas, node-1 and node-2, in place: so that this process sees the bytes
  // arrive in the memory that it has mapped.
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(cluster_, LiveCluster::Start({.workers = {"node-0", "node-1", "node-2"}}));
    ASSERT_OK_AND_ASSIGN(case_, ReshardCase::Create({.manifest = TensorsOf(kBytes),
                                                     .binding = v1::BINDING_MODE_IN_PLACE},
                                                    *cluster_));
  }

  std::unique_ptr<RunningReshard> StartReshard() {
    return std::make_unique<RunningReshard>(cluster_->controller_address(), case_->spec());
  }

  void WaitForBytes(const std::string& worker) {
    ASSERT_TRUE(WaitUntil(kArriveMax, [&] { return case_->HasArrived(worker); }))
        << "nothing arrived at " << worker;
  }

  // Sends the signal, and waits for the failure of a replica, which must come within `limit`, for
  // `worker`'s sake.
  void ExpectReplicaFails(RunningReshard& running, int replica, const std::string& worker,
                          int signal, absl::Duration limit) {
    const RealClock clock;
    const absl::Duration begin = clock.Monotonic();
    signal == SIGKILL ? cluster_->Kill(worker) : cluster_->Signal(worker, signal);
    ASSERT_OK_AND_ASSIGN(const v1::Operation operation,
                         running.WaitFor(
                             [replica](const v1::Operation& now) {
                               return now.replicas_size() > replica &&
                                      now.replicas(replica).state() == v1::REPLICA_STATE_FAILED;
                             },
                             absl::Seconds(30)));
    const absl::Duration took = clock.Monotonic() - begin;
    std::cout << "the replica failed " << absl::ToInt64Milliseconds(took) << " ms after signal "
              << signal << "\n";
    EXPECT_LE(took, limit);
    EXPECT_THAT(operation.replicas(replica).error(), HasSubstr(worker));
  }

  // Nothing of an operation is left at a worker but the tensors.
  void ExpectBuffersFreed(const std::string& worker) {
    const auto is_zero = [&](const std::string& metric, const std::string& label) {
      return WaitUntil(absl::Seconds(10), [&] {
        const absl::StatusOr<double> value = cluster_->Metric(worker, metric, label);
        return value.ok() && *value == 0;
      });
    };
    EXPECT_TRUE(is_zero("crossmesh_worker_staging_bytes", R"(state="used")")) << worker;
    EXPECT_TRUE(is_zero("crossmesh_worker_tensor_bytes", R"(state="receiving")")) << worker;
    EXPECT_TRUE(is_zero("crossmesh_worker_relays_in_progress", "")) << worker;
    EXPECT_TRUE(WaitUntil(absl::Seconds(10),
                          [&] {
                            const absl::StatusOr<v1::Worker> now = cluster_->GetWorker(worker);
                            return now.ok() && now->running_tasks() == 0;
                          }))
        << worker << " still counts a task";
  }

  void ExpectCommits(uint8_t version) {
    ASSERT_OK(case_->FillSource(version));
    ASSERT_OK_AND_ASSIGN(const v1::Operation operation,
                         Execute(cluster_->controller_address(), case_->spec()));
    ASSERT_EQ(operation.state(), v1::OPERATION_STATE_COMMITTED) << operation.ShortDebugString();
    EXPECT_OK(case_->CheckAll(version));
  }

  std::unique_ptr<LiveCluster> cluster_;
  std::unique_ptr<ReshardCase> case_;
};

class LostReplicaTest : public LossTest, public testing::WithParamInterface<const char*> {};

// With "relay" and the ring of "global_all_gather" each replica gets a part through the other one;
// with "send_recv" all comes from the source.
INSTANTIATE_TEST_SUITE_P(Strategies, LostReplicaTest,
                         testing::Values("relay", "send_recv", "global_all_gather"));

TEST_P(LostReplicaTest, FailsWithTheNameOfTheKilledWorkerAndTheOtherCommits) {
  case_->spec().set_strategy(GetParam());
  const auto running = StartReshard();
  WaitForBytes("node-2");
  ASSERT_FALSE(running->HasEnded());
  ExpectReplicaFails(*running, 1, "node-2", SIGKILL, LossMax());

  ASSERT_OK_AND_ASSIGN(const v1::Operation operation, running->Result());
  EXPECT_EQ(operation.state(), v1::OPERATION_STATE_PARTIAL) << operation.ShortDebugString();
  ASSERT_EQ(operation.replicas_size(), 2);
  EXPECT_EQ(operation.replicas(0).state(), v1::REPLICA_STATE_COMMITTED);
  EXPECT_THAT(operation.error(), HasSubstr("node-2"));
  EXPECT_OK(case_->Check("node-1", 1));
  ExpectBuffersFreed("node-0");
  ExpectBuffersFreed("node-1");

  // The others serve what does not need it; what does is refused with its name.
  const absl::StatusOr<v1::Operation> refused =
      Execute(cluster_->controller_address(), case_->spec());
  EXPECT_THAT(refused.ok() ? OutcomeOf(*refused).ToString() : refused.status().ToString(),
              HasSubstr("node-2"));
  const v1::ReshardSide both = case_->spec().destination();
  case_->spec().mutable_destination()->mutable_inline_mesh()->set_axes("replica=1");
  case_->spec().mutable_destination()->mutable_inline_mesh()->set_devices("node-1.0");
  ASSERT_OK(case_->FillSource(2));
  ASSERT_OK_AND_ASSIGN(const v1::Operation next,
                       Execute(cluster_->controller_address(), case_->spec()));
  EXPECT_EQ(next.state(), v1::OPERATION_STATE_COMMITTED) << next.ShortDebugString();
  EXPECT_OK(case_->Check("node-1", 2));

  // Started again under its name, it joins, and all is as before.
  *case_->spec().mutable_destination() = both;
  ASSERT_OK(cluster_->WaitForWorker("node-2", v1::WORKER_STATE_LOST));
  ASSERT_OK_AND_ASSIGN(const v1::Worker before, cluster_->GetWorker("node-2"));
  ASSERT_OK(cluster_->StartWorker("node-2"));
  ASSERT_OK(cluster_->WaitForAllWorkers());
  ASSERT_OK_AND_ASSIGN(const v1::Worker after, cluster_->GetWorker("node-2"));
  EXPECT_NE(after.incarnation(), before.incarnation());
  ASSERT_OK(case_->Prepare("node-2"));
  ExpectCommits(3);
}

TEST_F(LossTest, AKilledSourceFailsTheOperationWithItsName) {
  const auto running = StartReshard();
  WaitForBytes("node-1");
  ASSERT_FALSE(running->HasEnded());
  ExpectReplicaFails(*running, 0, "node-0", SIGKILL, LossMax());
  ASSERT_OK_AND_ASSIGN(const v1::Operation operation, running->Result());
  EXPECT_EQ(operation.state(), v1::OPERATION_STATE_FAILED) << operation.ShortDebugString();
  EXPECT_THAT(operation.error(), HasSubstr("node-0"));
  ExpectBuffersFreed("node-1");
  ExpectBuffersFreed("node-2");

  ASSERT_OK(cluster_->StartWorker("node-0"));
  ASSERT_OK(cluster_->WaitForAllWorkers());
  ASSERT_OK(case_->Prepare("node-0"));
  ExpectCommits(2);
}

TEST_F(LossTest, AStoppedWorkerIsFoundByItsProgressAndServesAgainWhenItGoesOn) {
  case_->spec().mutable_stall_limit()->set_seconds(1);
  const auto running = StartReshard();
  WaitForBytes("node-2");
  ASSERT_FALSE(running->HasEnded());
  // The stall limit, and as much again for workers that are slow to notice. Its connections stay
  // open, and the controller hears its silence only later.
  ExpectReplicaFails(*running, 1, "node-2", SIGSTOP, absl::Seconds(1) + LossMax());
  ASSERT_OK_AND_ASSIGN(const v1::Operation operation, running->Result());
  EXPECT_EQ(operation.state(), v1::OPERATION_STATE_PARTIAL) << operation.ShortDebugString();
  EXPECT_OK(case_->Check("node-1", 1));
  ExpectBuffersFreed("node-0");
  ExpectBuffersFreed("node-1");

  cluster_->Signal("node-2", SIGCONT);
  ASSERT_OK(cluster_->WaitForAllWorkers());
  ExpectBuffersFreed("node-2");
  ExpectCommits(2);
}

}  // namespace
}  // namespace crossmesh
