// Clients, workers and the command line find the controller that leads by themselves.

#include "client/client.h"
#include "common/base/clock.h"
#include "common/base/thread.h"
#include "common/testing/child_process.h"
#include "common/testing/paths.h"
#include "common/testing/patience.h"
#include "common/testing/status_matchers.h"
#include "controller/store/etcd/testing/etcd_process.h"
#include "tests/live/live_cluster.h"
#include "tests/live/reshard_case.h"

#include <csignal>
#include <iostream>
#include <latch>
#include <memory>
#include <optional>
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

constexpr absl::Duration kFollow = absl::Seconds(30);
constexpr absl::Duration kArrivalMax = absl::Seconds(30);
// A lease of 5 s, and what a client and a loaded machine need beside it.
constexpr absl::Duration kAnswerMax = absl::Seconds(10);

class StandbyTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(cluster_,
                         LiveCluster::Start({.workers = {"node-0", "node-1", "node-2"},
                                             .controller_flags = {"--etcd", etcd_.endpoint()},
                                             .controllers = {"first", "second"}}));
  }
  std::string ListWorkersByCommand() const {
    const std::string log = cluster_->PathOf("list.log");
    absl::StatusOr<ChildProcess> command = ChildProcess::Start(
        {.program = ProgramPath("crossmesh"),
         .arguments = {"worker", "list", "--controller", cluster_->controller_address()},
         .log_path = log});
    EXPECT_OK(command.status());
    std::optional<std::string> exit;
    for (const Patience patience; !exit.has_value(); patience.Check()) exit = command->ExitText();
    return absl::StrCat(*exit, "\n", ReadTextFile(log));
  }

  const RealClock clock_;
  EtcdProcess etcd_;
  std::unique_ptr<LiveCluster> cluster_;
};

// By the signal that the leader gets.
class LeaderTest : public StandbyTest, public testing::WithParamInterface<int> {};

TEST_P(LeaderTest, AnOperationAndItsClientGoOnWithTheNextOne) {
  ASSERT_OK_AND_ASSIGN(
      const auto reshard,
      ReshardCase::Create({.manifest = TensorsOf(128 << 20), .binding = v1::BINDING_MODE_IN_PLACE},
                          *cluster_));
  v1::ExecuteReshardRequest request;
  *request.mutable_spec() = reshard->spec();
  request.mutable_spec()->set_nic_share(0.001);
  request.set_request_id(NewRequestId());
  ASSERT_OK_AND_ASSIGN(Client client,
                       Client::Connect(cluster_->controller_address(), {.follow_for = kFollow}));
  ASSERT_OK_AND_ASSIGN(const v1::Operation begun, client.Start(request));
  // All have the task: one that the leader has not told yet could not be told by the next one.
  for (const std::string& worker : reshard->receivers()) {
    ASSERT_TRUE(WaitUntil(kArrivalMax, [&] { return reshard->HasArrived(worker); })) << worker;
  }

  cluster_->Signal("first", GetParam());
  const absl::Duration start = clock_.Monotonic();
  EXPECT_OK(client.ListMeshes().status());
  const absl::Duration took = clock_.Monotonic() - start;
  std::cout << "answers " << took << " after signal " << GetParam() << "\n";
  EXPECT_LT(took, kAnswerMax);

  ASSERT_OK_AND_ASSIGN(const v1::Operation again, client.Start(request));
  EXPECT_EQ(again.id(), begun.id());
  ASSERT_OK_AND_ASSIGN(const v1::Operation ended,
                       client.Watch(begun.id(), [](const v1::Operation&) {}));
  EXPECT_OK(OutcomeOf(ended));
  EXPECT_OK(reshard->CheckAll(1));
  EXPECT_OK(cluster_->WaitForAllWorkers());
  // New ones find their way too.
  EXPECT_THAT(ListWorkersByCommand(), HasSubstr("exit status 0"));
}

INSTANTIATE_TEST_SUITE_P(Signals, LeaderTest, testing::Values(SIGKILL, SIGSTOP),
                         [](const auto& info) { return info.param == SIGKILL ? "Kill" : "Stop"; });

TEST_F(StandbyTest, OneThatStandsBySaysSoAndNamesTheLeader) {
  const std::string standby = cluster_->AddressOf("second");
  for (const Patience patience; !cluster_->Leads("second").ok();) patience.Check();
  EXPECT_THAT(cluster_->Leads("second"), IsOkAndHolds(false));
  EXPECT_THAT(cluster_->Leads("first"), IsOkAndHolds(true));
  const auto stands_by = [&] {
    const absl::StatusOr<v1::Controller> controller = cluster_->client().GetController();
    return controller.ok() && controller->standbys_size() == 1 &&
           controller->standbys(0).address() == standby;
  };
  for (const Patience patience; !stands_by();) patience.Check();
  // The client is led on, and so is one that knows no other address.
  ASSERT_OK_AND_ASSIGN(Client client, Client::Connect(standby, {}));
  v1::Mesh mesh;
  mesh.set_name("a");
  mesh.set_axes("data=1");
  mesh.set_devices("node-0.0");
  EXPECT_OK(client.CreateMesh(mesh).status());
  EXPECT_OK(client.ListMeshes().status());
}

TEST_F(StandbyTest, AFormerLeaderThatGoesOnAnswersNothingOfItsOwn) {
  ASSERT_OK_AND_ASSIGN(Client other, Client::Connect(cluster_->AddressOf("second"), {}));
  // Connected before: what it asks then lies at the former leader when that goes on, which must not
  // answer it from what it knew, before it can know anything else.
  constexpr int kClients = 8;
  std::vector<Client> clients;
  for (int i = 0; i < kClients; ++i) {
    ASSERT_OK_AND_ASSIGN(Client client, Client::Connect(cluster_->AddressOf("first"), {}));
    clients.push_back(std::move(client));
    ASSERT_OK(clients.back().ListMeshes().status());
  }
  cluster_->Signal("first", SIGSTOP);
  ASSERT_TRUE(WaitUntil(kArrivalMax, [&] {
    const absl::StatusOr<bool> leads = cluster_->Leads("second");
    return leads.ok() && *leads;
  }));
  v1::Mesh mesh;
  mesh.set_name("later");
  mesh.set_axes("data=1");
  mesh.set_devices("node-0.0");
  ASSERT_OK(other.CreateMesh(mesh).status());

  std::vector<absl::Status> answers(kClients);
  {
    std::latch asking(kClients);
    std::vector<Thread> threads;
    for (int i = 0; i < kClients; ++i) {
      threads.emplace_back("asks", [&, i] {
        asking.count_down();
        answers[i] = clients[i].GetMesh("later").status();
      });
    }
    asking.wait();
    cluster_->Signal("first", SIGCONT);
  }
  for (const absl::Status& answer : answers) {
    EXPECT_TRUE(answer.ok() || absl::IsUnavailable(answer)) << answer;
  }
}

}  // namespace
}  // namespace crossmesh
