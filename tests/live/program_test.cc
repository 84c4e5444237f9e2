// The programs as a user runs them: what daemons refuse, and commands that need several.

#include "client/cli/testing/program_run.h"
#include "client/safetensors/file.h"
#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"
#include "tests/live/live_cluster.h"
#include "tests/live/one_tensor.h"
#include "tests/standin/stand_in.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;

namespace fs = std::filesystem;

TEST(DaemonTest, AnAddressBeyondThisHostNeedsInsecure) {
  const ProgramResult controller =
      RunShell(ProgramPath("crossmesh-controller") + " --listen 0.0.0.0:0 2>&1");
  EXPECT_EQ(controller.exit_status, 64) << controller.out;
  EXPECT_THAT(controller.out, HasSubstr("--insecure"));
  const ProgramResult worker =
      RunShell(ProgramPath("crossmesh-worker") +
               " --name w --devices w.0 --controller 127.0.0.1:1 --listen 0.0.0.0:0 2>&1");
  EXPECT_EQ(worker.exit_status, 64) << worker.out;
  EXPECT_THAT(worker.out, HasSubstr("--insecure"));
}

TEST(DaemonTest, ASharedGpuNeedsItsFlag) {
  const auto start = [](const std::string& flags) {
    return RunShell(absl::StrCat(ProgramPath("crossmesh-worker"),
                                 " --name w --devices w.0 --controller 127.0.0.1:1 --gpu w.1=",
                                 StandInUuid(0), flags, " 2>&1"));
  };
  const ProgramResult share = start(":0");
  EXPECT_EQ(share.exit_status, 64) << share.out;
  EXPECT_THAT(share.out, HasSubstr("expected a whole GPU, found a share, which --gpu-shares"));
  const ProgramResult whole = start(" --gpu-shares");
  EXPECT_EQ(whole.exit_status, 64) << whole.out;
  EXPECT_THAT(whole.out, HasSubstr("expected a share such as GPU-4bd8...:0"));
}

TEST(DaemonTest, AnAddressInUseExitsWithSeventyFive) {
  ASSERT_OK_AND_ASSIGN(const auto cluster, LiveCluster::Start({.workers = {"node-0"}}));
  const ProgramResult controller = RunShell(absl::StrCat(
      ProgramPath("crossmesh-controller"), " --listen ", cluster->controller_address(), " 2>&1"));
  EXPECT_EQ(controller.exit_status, 75) << controller.out;
  EXPECT_THAT(controller.out, HasSubstr(cluster->controller_address()));
  const ProgramResult worker = RunShell(absl::StrCat(
      ProgramPath("crossmesh-worker"), " --name w --devices w.0 --controller ",
      cluster->controller_address(), " --listen unix:", cluster->PathOf("node-0.sock"), " 2>&1"));
  EXPECT_EQ(worker.exit_status, 75) << worker.out;
  EXPECT_THAT(worker.out, HasSubstr("node-0.sock"));
  // The one that was there first is not disturbed.
  EXPECT_OK(cluster->client().ListWorkers());
}

// A controller answers with figures, so the client makes the plan once more.
TEST(DaemonTest, WhatStandardOutputDoesNotTakeIsAFailure) {
  for (const std::string daemon : {"crossmesh-controller", "crossmesh-worker", "crossmesh-gpu"}) {
    for (const char* flag : {" --help", " --version"}) {
      const ProgramResult result = RunShell(ProgramPath(daemon) + flag + " > /dev/full");
      EXPECT_EQ(result.exit_status, 70) << daemon << flag;
      EXPECT_THAT(result.error, HasSubstr(daemon + ": error: cannot write to standard output"));
    }
  }
}

TEST(PlanProgramTest, DrawsAPlanOfAControllerFromWhatTheRequestSaysAndTheControllerKnows) {
  ASSERT_OK_AND_ASSIGN(const auto cluster, LiveCluster::Start({}));
  // By the variable, as users name their controller.
  const auto run = [&](const std::string& arguments) {
    return RunShell(absl::StrCat("CROSSMESH_CONTROLLER='", cluster->controller_address(),
                                 "' \"$CROSSMESH\" ", arguments));
  };
  const auto plan = [&](const std::string& objects) {
    const std::string picture = cluster->PathOf("plan.json");
    const ProgramResult drawn = run(absl::StrCat("plan ", objects, " --source-layout '[...]' ",
                                                 "--destination-layout '[...]' --svg ", picture));
    EXPECT_EQ(drawn.exit_status, 0) << objects << ": " << drawn.error;
    EXPECT_TRUE(fs::remove(picture)) << objects;
  };
  plan("--manifest examples/gpt2.json --source 'x=1 on a.0' --destination 'y=2 on b.0,c.0'");
  for (const char* command :
       {"manifest create gpt2 examples/gpt2.json", "mesh create trainer 'x=1 on a.0'",
        "mesh create server 'y=2 on b.0,c.0'"}) {
    const ProgramResult created = run(command);
    ASSERT_EQ(created.exit_status, 0) << created.error;
  }
  plan("--manifest gpt2 --source trainer --destination server");
  // Under a network of the controller's as well.
  std::ofstream(cluster->PathOf("network.json")) << R"({"hosts": [{"name": "a", "nics": [
      {"name": "n", "out_bytes_per_second": 7000000, "in_bytes_per_second": 9000000}]}]})";
  ASSERT_EQ(run("network set " + cluster->PathOf("network.json")).exit_status, 0);
  plan("--manifest gpt2 --source trainer --destination server");
}

TEST(ManifestProgramTest, WhatIsShownCanBeRegisteredAgain) {
  ASSERT_OK_AND_ASSIGN(const auto cluster, LiveCluster::Start({}));
  const auto run = [&](const std::string& arguments) {
    return RunShell(absl::StrCat("\"$CROSSMESH\" manifest ", arguments, " --controller ",
                                 cluster->controller_address()));
  };
  ASSERT_EQ(run("create gpt2 examples/gpt2.json").exit_status, 0);
  const ProgramResult again =
      run(absl::StrCat("show gpt2 --json > ", cluster->PathOf("shown.json"), " --controller ",
                       cluster->controller_address(), " && \"$CROSSMESH\" manifest put again ",
                       cluster->PathOf("shown.json")));
  EXPECT_EQ(again.exit_status, 0) << again.error;
  const nlohmann::json manifests = nlohmann::json::parse(run("list --json").out)["manifests"];
  ASSERT_EQ(manifests.size(), 2);
  EXPECT_EQ(manifests[0]["digest"], manifests[1]["digest"]);
}

TEST(StorageProgramTest, SafetensorsGoIntoAStorageAndComeOut) {
  ASSERT_OK_AND_ASSIGN(const auto cluster, LiveCluster::Start({.workers = {"node-0"}}));
  std::vector<std::byte> matrix(6 * 8 * 4);
  for (size_t i = 0; i < matrix.size(); ++i) matrix[i] = std::byte{static_cast<uint8_t>(i)};
  const std::string in = cluster->PathOf("in.safetensors"), out = cluster->PathOf("out");
  ASSERT_OK(WriteOne(in, "w", {6, 8}, matrix));
  const auto storage = [&](const std::string& arguments) {
    return RunShell(absl::StrCat("\"$CROSSMESH\" storage ", arguments,
                                 " --memory node-0=", cluster->PathOf("node-0.memory")));
  };
  // Only the side that is meant is described.
  const ProgramResult filled = storage(absl::StrCat(
      "fill --manifest ", in, " --values ", in,
      " --source 'x=1 on node-0.0' --source-layout '[x, -]' --source-storage weights"));
  EXPECT_EQ(filled.exit_status, 0) << filled.error;
  const ProgramResult exported = storage(absl::StrCat(
      "export --manifest ", in, " --destination 'x=1 on node-0.0' --destination-layout '[x, -]' ",
      "--destination-storage weights --output ", out));
  EXPECT_EQ(exported.exit_status, 0) << exported.error;
  ASSERT_OK_AND_ASSIGN(const SafetensorsFile file,
                       SafetensorsFile::Open(absl::StrCat(out, "/node-0.0.safetensors")));
  const std::span<const std::byte> found = file.Bytes(0);
  EXPECT_EQ(std::vector<std::byte>(found.begin(), found.end()), matrix);

  EXPECT_THAT(storage("create more node-0.0 --bytes 4096").out,
              HasSubstr("storage \"more\" of device node-0.0: 4.1 kB"));
  const nlohmann::json listed = nlohmann::json::parse(storage("list --json").out)["storages"];
  ASSERT_EQ(listed.size(), 2);
  EXPECT_EQ(listed[0]["bytes"].get<int64_t>() + listed[1]["bytes"].get<int64_t>(), 4096 + 192);
  EXPECT_EQ(listed[0]["shadow_bytes"], 0);
  EXPECT_THAT(storage("trim more node-0.0").out, HasSubstr("of device node-0.0 has no shadow"));
  EXPECT_THAT(storage("trim most node-0.0").error, HasSubstr("expected one, found none"));
  EXPECT_EQ(storage("delete more node-0.0").exit_status, 0);
  EXPECT_THAT(storage("delete more node-0.0").error, HasSubstr("expected one, found none"));
  EXPECT_THAT(storage("delete more node-7.0").error, HasSubstr("socket of host \"node-7\""));
}

}  // namespace
}  // namespace crossmesh
