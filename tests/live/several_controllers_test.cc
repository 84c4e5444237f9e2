// Controllers with one etcd, as processes: one serves, and another goes on where it ended.

#include "client/client.h"
#include "common/base/clock.h"
#include "common/testing/child_process.h"
#include "common/testing/paths.h"
#include "common/testing/patience.h"
#include "common/testing/send_signal.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_folder.h"
#include "controller/store/etcd/testing/etcd_process.h"

#include <csignal>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>
#include <absl/time/time.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

class SeveralControllersTest : public testing::Test {
 protected:
  std::string Address(const std::string& name) const {
    return absl::StrCat("unix:", folder_.PathOf(name));
  }
  std::string LogOf(const std::string& name) const {
    return ReadTextFile(folder_.PathOf(absl::StrCat(name, ".log")));
  }
  ChildProcess Start(const std::string& name) {
    absl::StatusOr<ChildProcess> process = ChildProcess::Start(
        {.program = ProgramPath("crossmesh-controller"),
         .arguments = {"--listen", Address(name), "--metrics-listen", "127.0.0.1:0", "--etcd",
                       etcd_.endpoint(), "--etcd-watermark",
                       folder_.PathOf(absl::StrCat(name, ".watermark")), "--ready-file",
                       folder_.PathOf(absl::StrCat(name, ".ready"))},
         .log_path = folder_.PathOf(absl::StrCat(name, ".log"))});
    EXPECT_OK(process.status());
    return *std::move(process);
  }
  // The epoch with which it serves.
  uint64_t AwaitService(const std::string& name) {
    const Patience patience;
    std::string ready;
    for (; ready.empty(); patience.Check()) {
      ready = ReadTextFile(folder_.PathOf(absl::StrCat(name, ".ready")));
    }
    return nlohmann::json::parse(ready).at("epoch").get<uint64_t>();
  }
  void AwaitLog(const std::string& name, const std::string& event) {
    for (const Patience patience; LogOf(name).find(event) == std::string::npos;) patience.Check();
  }
  static std::optional<std::string> AwaitExit(ChildProcess& process) {
    std::optional<std::string> exit;
    for (const Patience patience; !exit.has_value(); patience.Check()) exit = process.ExitText();
    return exit;
  }
  std::vector<std::string> MeshesAt(const std::string& name) {
    absl::StatusOr<Client> client = Client::Connect(Address(name), {});
    EXPECT_OK(client.status());
    const absl::StatusOr<std::vector<v1::Mesh>> meshes = client->ListMeshes();
    EXPECT_OK(meshes.status());
    std::vector<std::string> names;
    for (const v1::Mesh& mesh : *meshes) names.push_back(mesh.name());
    return names;
  }
  void CreateMesh(const std::string& controller, const std::string& name) {
    absl::StatusOr<Client> client = Client::Connect(Address(controller), {});
    ASSERT_OK(client.status());
    v1::Mesh mesh;
    mesh.set_name(name);
    mesh.set_axes("data=1");
    mesh.set_devices("node-0.0");
    EXPECT_OK(client->CreateMesh(mesh).status());
  }

  const RealClock clock_;
  const TemporaryFolder folder_;
  EtcdProcess etcd_;
};

TEST_F(SeveralControllersTest, WhenTheOneThatServesIsKilledTheNextOneHasAllThatItAcknowledged) {
  ChildProcess first = Start("first");
  const uint64_t first_epoch = AwaitService("first");
  ChildProcess second = Start("second");
  AwaitLog("second", "controller_stands_by");
  CreateMesh("first", "a");
  const absl::Duration start = clock_.Monotonic();
  first.Kill();
  EXPECT_GT(AwaitService("second"), first_epoch);
  const absl::Duration took = clock_.Monotonic() - start;
  std::cout << "serves " << took << " after the other one was killed\n";
  EXPECT_LT(took, absl::Seconds(7));
  EXPECT_THAT(MeshesAt("second"), testing::ElementsAre("a"));
  CreateMesh("second", "b");
  second.Terminate();
  EXPECT_EQ(AwaitExit(second), "exit status 0");
}

TEST_F(SeveralControllersTest, OneThatIsAskedToStopHandsOverInASecond) {
  ChildProcess first = Start("first");
  AwaitService("first");
  ChildProcess second = Start("second");
  AwaitLog("second", "\"leader\":");
  first.Terminate();
  EXPECT_EQ(AwaitExit(first), "exit status 0");
  const absl::Duration start = clock_.Monotonic();
  AwaitService("second");
  EXPECT_LT(clock_.Monotonic() - start, absl::Seconds(1));
  EXPECT_THAT(MeshesAt("second"), testing::IsEmpty());
}

TEST_F(SeveralControllersTest, OneThatIsStoppedForTooLongEndsWhenItGoesOn) {
  ChildProcess first = Start("first");
  const uint64_t epoch = AwaitService("first");
  ChildProcess second = Start("second");
  AwaitLog("second", "controller_stands_by");
  SendSignal(first.pid(), SIGSTOP);
  EXPECT_GT(AwaitService("second"), epoch);
  SendSignal(first.pid(), SIGCONT);
  EXPECT_EQ(AwaitExit(first), "exit status 70");
  EXPECT_THAT(LogOf("first"), testing::HasSubstr("this controller leads no more"));
}

TEST_F(SeveralControllersTest, AllOfThemRefuseAnEtcdThatWasSetBackWhileNoneRan) {
  const std::string backup = folder_.PathOf("backup");
  for (const char* mesh : {"a", "b"}) {
    std::filesystem::remove(folder_.PathOf("first.ready"));
    ChildProcess first = Start("first");
    AwaitService("first");
    CreateMesh("first", mesh);
    first.Terminate();
    ASSERT_EQ(AwaitExit(first), "exit status 0");
    etcd_.Kill();
    if (mesh[0] == 'a') {
      std::filesystem::copy(etcd_.data_folder(), backup, std::filesystem::copy_options::recursive);
      etcd_.Start();
    }
  }
  std::filesystem::remove_all(etcd_.data_folder());
  std::filesystem::copy(backup, etcd_.data_folder(), std::filesystem::copy_options::recursive);
  etcd_.Start();
  ChildProcess again = Start("first");
  EXPECT_EQ(AwaitExit(again), "exit status 65");
  EXPECT_THAT(LogOf("first"), testing::HasSubstr("was set back"));
}

TEST_F(SeveralControllersTest, OneThatStandsByStopsWhenItIsAsked) {
  ChildProcess first = Start("first");
  AwaitService("first");
  ChildProcess second = Start("second");
  AwaitLog("second", "controller_stands_by");
  second.Terminate();
  EXPECT_EQ(AwaitExit(second), "exit status 0");
}

}  // namespace
}  // namespace crossmesh
