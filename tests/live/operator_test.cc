// What an operator asks of daemons that run: probes, the controller and its store, its log.

#include "client/client.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_folder.h"
#include "tests/live/live_cluster.h"

#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr absl::Duration kPatience = absl::Seconds(20);

class OperatorTest : public testing::Test {
 protected:
  void SetUp() override {
    WriteConfiguration("log-level = \"info\"");
    ASSERT_OK_AND_ASSIGN(
        cluster_,
        LiveCluster::Start(
            {.workers = {"a"},

             .controller_flags = {"--state-dir", folder_.PathOf("state"), "--backup-dir",
                                  folder_.PathOf("backups"), "--config", Configuration()}}));
  }
  std::string Configuration() const { return folder_.PathOf("controller.toml"); }
  void WriteConfiguration(const std::string& text) const {
    std::ofstream(Configuration()) << text << "\n";
  }

  const TemporaryFolder folder_;
  std::unique_ptr<LiveCluster> cluster_;
};

TEST_F(OperatorTest, DaemonsAnswerProbesWhileTheyServe) {
  for (const std::string daemon : {LiveCluster::kController, "a"}) {
    ASSERT_OK_AND_ASSIGN(const nlohmann::json ready, cluster_->Ready(daemon));
    const std::string address = ready.at("metrics_address");
    EXPECT_EQ(*HttpGet(address, "/livez"), "alive\n") << daemon;
    EXPECT_EQ(*HttpGet(address, "/readyz"), "serves\n") << daemon;
    EXPECT_EQ(*HttpGet(address, "/startupz"), "has started\n") << daemon;
  }
}

TEST_F(OperatorTest, TheControllerTellsOfItselfAndItsStore) {
  ASSERT_OK_AND_ASSIGN(const v1::Controller controller, cluster_->client().GetController());
  EXPECT_EQ(controller.store().kind(), "sqlite");
  EXPECT_GT(controller.store().revision(), 0);
  EXPECT_GT(controller.store().free_bytes(), 0);
  EXPECT_GT(controller.epoch(), 0);
  EXPECT_EQ(controller.addresses(0), cluster_->controller_address());
  ASSERT_OK_AND_ASSIGN(const std::vector<std::string> lines, cluster_->client().ListLogLines(100));
  EXPECT_THAT(lines, Contains(HasSubstr("\"event\":\"store_opened\"")));
  for (const std::string& line : lines) EXPECT_TRUE(nlohmann::json::accept(line)) << line;
}

TEST_F(OperatorTest, TheStoreIsCopiedAndVerifiedWhileItRuns) {
  v1::Mesh mesh;
  mesh.set_name("pair");
  mesh.set_axes("x=1");
  mesh.set_devices("a.0");
  ASSERT_OK(cluster_->client().CreateMesh(mesh));
  ASSERT_OK_AND_ASSIGN(const std::string file, cluster_->client().BackUpStore());
  EXPECT_THAT(file, StartsWith(folder_.PathOf("backups")));
  EXPECT_TRUE(std::filesystem::exists(file));
  EXPECT_OK(cluster_->client().VerifyStore());
  EXPECT_OK(cluster_->client().ReleaseStoreReserve());
  EXPECT_TRUE(WaitUntil(kPatience, [&] {
    const auto backed_up =
        cluster_->Metric(LiveCluster::kController, "crossmesh_store_last_backup_timestamp_seconds");
    return backed_up.ok() && *backed_up > 0;
  }));
  EXPECT_GT(*cluster_->Metric(LiveCluster::kController, "crossmesh_store_transactions_total",
                              "op=\"write\""),
            0);
}

TEST_F(OperatorTest, WorkersTellWhatTheirNicsMove) {
  EXPECT_TRUE(WaitUntil(kPatience, [&] {
    const auto worker = cluster_->GetWorker("a");
    return worker.ok() && worker->traffic_size() == 1 && worker->traffic(0).interface() == "lo" &&
           worker->traffic(0).sent_bytes() > 0;
  }));
}

TEST_F(OperatorTest, ReloadsAreCountedAndTheConfigurationHasANumber) {
  const auto metric = [&](const std::string& name, const std::string& label = "") {
    return cluster_->Metric(LiveCluster::kController, name, label).value_or(-1);
  };
  const double hash = metric("crossmesh_config_hash");
  EXPECT_GT(hash, 0);
  WriteConfiguration("log-levle = \"debug\"");
  cluster_->Signal(LiveCluster::kController, SIGHUP);
  EXPECT_TRUE(WaitUntil(kPatience, [&] {
    return metric("crossmesh_config_reloads_total", "result=\"failure\"") == 1;
  }));
  EXPECT_EQ(metric("crossmesh_config_last_reload_successful"), 0);
  EXPECT_EQ(metric("crossmesh_config_hash"), hash);
  WriteConfiguration("log-level = \"warning\"");
  cluster_->Signal(LiveCluster::kController, SIGHUP);
  EXPECT_TRUE(
      WaitUntil(kPatience, [&] { return metric("crossmesh_config_last_reload_successful") == 1; }));
  EXPECT_NE(metric("crossmesh_config_hash"), hash);
}

}  // namespace
}  // namespace crossmesh
