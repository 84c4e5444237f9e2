// Every daemon of a cluster is restarted, one after the other, while clients go on.

#include "client/client.h"
#include "common/testing/patience.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_folder.h"
#include "controller/store/etcd/testing/etcd_process.h"
#include "tests/live/live_cluster.h"
#include "tests/live/reshard_case.h"
#include "tests/live/steady_client.h"

#include <iostream>
#include <memory>
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

using ::testing::IsEmpty;

// Target P13; a hand-over, or a restart with a store, takes less than half a second.
constexpr absl::Duration kWorstMax = absl::Seconds(2);

v1::Mesh MeshOf(int number) {
  v1::Mesh mesh;
  mesh.set_name(absl::StrCat("m-", number % 100));
  mesh.set_axes("data=1");
  mesh.set_devices("node-0.0");
  return mesh;
}

// Each kind of call in turn.
absl::Status AskSomething(Client& client, int number, const v1::ReshardSpec& spec) {
  switch (number % 5) {
    case 0:
      return client.CreateMesh(MeshOf(number)).status();
    case 1:
      return client.GetMesh(MeshOf(number - 1).name()).status();
    case 2:
      return client.ListMeshes().status();
    case 3: {
      v1::PlanReshardRequest request;
      *request.mutable_spec() = spec;
      return client.Plan(request).status();
    }
    default:
      return client.ListWorkers().status();
  }
}

absl::Status MoveOnce(Client& client, const v1::ReshardSpec& spec) {
  v1::ExecuteReshardRequest request;
  *request.mutable_spec() = spec;
  request.set_request_id(NewRequestId());
  const absl::StatusOr<v1::Operation> begun = client.Start(request);
  if (!begun.ok()) return begun.status();
  const absl::StatusOr<v1::Operation> ended =
      client.Watch(begun->id(), [](const v1::Operation&) {});
  return ended.ok() ? OutcomeOf(*ended) : ended.status();
}

class RollingRestartTest : public testing::Test {
 protected:
  void Start(std::vector<std::string> controllers, std::vector<std::string> flags) {
    ASSERT_OK_AND_ASSIGN(cluster_, LiveCluster::Start({.workers = {"node-0", "node-1", "node-2"},
                                                       .controller_flags = std::move(flags),
                                                       .controllers = std::move(controllers)}));
    ASSERT_OK_AND_ASSIGN(reshard_,
                         ReshardCase::Create({.manifest = TensorsOf(1 << 20)}, *cluster_));
    calls_ = std::make_unique<SteadyClient>(cluster_->controller_address(),
                                            [&spec = reshard_->spec()](Client& client, int number) {
                                              return AskSomething(client, number, spec);
                                            });
    operations_ = std::make_unique<SteadyClient>(
        cluster_->controller_address(),
        [&spec = reshard_->spec()](Client& client, int) { return MoveOnce(client, spec); });
    operations_->AwaitAnother();
  }
  void AwaitThat(const std::string& controller, bool leads) const {
    const Patience patience;
    for (absl::StatusOr<bool> found = cluster_->Leads(controller); !found.ok() || *found != leads;
         patience.Check()) {
      found = cluster_->Leads(controller);
    }
  }
  // What is in a worker's memory ends with it, so operations end first.
  void RestartWorkers() {
    operations_->Stop();
    for (const std::string& worker : cluster_->workers()) {
      ASSERT_OK(cluster_->Stop(worker));
      ASSERT_OK(cluster_->StartWorker(worker));
      ASSERT_OK(cluster_->WaitForWorker(worker, v1::WORKER_STATE_READY));
      calls_->AwaitAnother();
    }
  }
  void CheckClients() {
    calls_->Stop();
    EXPECT_THAT(calls_->failures(), IsEmpty());
    EXPECT_THAT(operations_->failures(), IsEmpty());
    EXPECT_LT(calls_->worst(), kWorstMax);
    std::cout << calls_->done() << " calls, the longest of " << calls_->worst() << "; "
              << operations_->done() << " operations, the longest of " << operations_->worst()
              << "\n";
  }

  std::unique_ptr<LiveCluster> cluster_;
  std::unique_ptr<ReshardCase> reshard_;
  std::unique_ptr<SteadyClient> calls_;
  std::unique_ptr<SteadyClient> operations_;
};

TEST_F(RollingRestartTest, OfTwoControllersAndTheWorkersNoCallFails) {
  const EtcdProcess etcd;
  Start({"first", "second"}, {"--etcd", etcd.endpoint()});
  AwaitThat("second", false);
  // Each leads when it is asked to stop.
  for (const auto& [controller, next] :
       {std::pair<std::string, std::string>{"first", "second"}, {"second", "first"}}) {
    ASSERT_OK(cluster_->Stop(controller));
    AwaitThat(next, true);
    ASSERT_OK(cluster_->StartController(controller));
    AwaitThat(controller, false);
    operations_->AwaitAnother();
  }
  RestartWorkers();
  CheckClients();
}

TEST_F(RollingRestartTest, OfAControllerWithAStoreNoCallFails) {
  const TemporaryFolder state;
  Start({LiveCluster::kController}, {"--state-dir", state.PathOf("state")});
  for (int restart = 0; restart < 2; ++restart) {
    ASSERT_OK(cluster_->Stop(LiveCluster::kController));
    ASSERT_OK(cluster_->StartController());
    operations_->AwaitAnother();
  }
  RestartWorkers();
  CheckClients();
}

}  // namespace
}  // namespace crossmesh
