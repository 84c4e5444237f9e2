// The programs as a user runs them: the demo, and what daemons refuse.

#include "client/cli/testing/program_run.h"
#include "client/safetensors/file.h"
#include "client/safetensors/writer.h"
#include "common/testing/child_process.h"
#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_folder.h"
#include "planner/reshard/strategy.h"
#include "tests/live/live_cluster.h"
#include "tests/standin/stand_in.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_replace.h>
#include <absl/strings/string_view.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;

namespace fs = std::filesystem;

// Of one tensor, of type F32.
absl::Status WriteOne(const std::string& path, const std::string& name, std::vector<int64_t> shape,
                      const std::vector<std::byte>& bytes) {
  SafetensorsEntry entry;
  entry.spec.name = name;
  entry.spec.shape = Shape::Create(shape).value();
  entry.bytes = bytes;
  return WriteSafetensors(path, std::vector<SafetensorsEntry>{entry});
}

// The command lines of all processes in which `text` occurs.
std::string ProcessesWith(absl::string_view text) {
  std::string found;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc", error)) {
    // Its words end with zeros.
    const std::string command = absl::StrReplaceAll(ReadAll((entry.path() / "cmdline").string()),
                                                    {{std::string(1, '\0'), " "}});
    if (absl::StrContains(command, text)) absl::StrAppend(&found, command, "\n");
  }
  return found;
}

class DemoTest : public testing::Test {
 protected:
  // Where the demo makes its own folder.
  std::string Demo(const std::string& arguments) const {
    return absl::StrCat("TMPDIR=", folder_.path(), " exec ", ProgramPath("crossmesh"), " demo ",
                        arguments);
  }

  void ExpectNothingIsLeft() const {
    for (const fs::directory_entry& entry : fs::directory_iterator(folder_.path())) {
      ADD_FAILURE() << "left behind: " << entry.path();
    }
    // Those that were killed may still be on their way out.
    EXPECT_TRUE(WaitUntil(absl::Seconds(5), [&] { return ProcessesWith(folder_.path()).empty(); }))
        << ProcessesWith(folder_.path());
  }

  const TemporaryFolder folder_;
};

TEST_F(DemoTest, MovesAFolderOfSafetensorsByteForByte) {
  const TemporaryFolder files;
  std::vector<std::byte> matrix(6 * 8 * 4);
  for (size_t i = 0; i < matrix.size(); ++i) matrix[i] = std::byte{static_cast<uint8_t>(i)};
  std::vector<std::byte> bias(10 * 4 * 4, std::byte{7});
  ASSERT_TRUE(fs::create_directory(files.PathOf("in")));
  ASSERT_OK(WriteOne(files.PathOf("in/a.safetensors"), "w", {6, 8}, matrix));
  ASSERT_OK(WriteOne(files.PathOf("in/b.safetensors"), "b", {10, 4}, bias));
  std::ofstream(files.PathOf("rules")) << "w  [-, model]\nb  [-, -]\n";

  const ProgramResult result = RunShell(Demo(absl::StrCat(
      files.PathOf("in"), " --json --strategy relay,send_recv ", "--destination-rules ",
      files.PathOf("rules"), " --output ", files.PathOf("out"))));
  ASSERT_EQ(result.exit_status, 0) << result.error;
  const nlohmann::json document = nlohmann::json::parse(result.out, nullptr, false);
  ASSERT_TRUE(document.is_object()) << "expected one JSON document, found: " << result.out;
  EXPECT_EQ(document.at("strategies").size(), 2);
  EXPECT_TRUE(document.at("verified").get<bool>());

  // Slot (replica, model) is node-(2 replica + model), and holds columns [4 model, 4 model + 4).
  for (int slot = 0; slot < 4; ++slot) {
    ASSERT_OK_AND_ASSIGN(
        const SafetensorsFile file,
        SafetensorsFile::Open(files.PathOf(absl::StrCat("out/node-", slot, ".0.safetensors"))));
    ASSERT_EQ(file.header().tensors.size(), 2);
    std::vector<std::byte> expected;
    for (int row = 0; row < 6; ++row) {
      const auto begin = matrix.begin() + (row * 8 + slot % 2 * 4) * 4;
      expected.insert(expected.end(), begin, begin + 16);
    }
    for (size_t i = 0; i < 2; ++i) {
      const std::span<const std::byte> found = file.Bytes(i);
      const bool is_matrix = file.header().tensors[i].spec.name == "w";
      EXPECT_EQ(std::vector<std::byte>(found.begin(), found.end()), is_matrix ? expected : bias);
    }
  }
  ExpectNothingIsLeft();
}

TEST_F(DemoTest, ConvertsOnTheWay) {
  const TemporaryFolder files;
  std::vector<float> matrix(6 * 8);
  for (size_t i = 0; i < matrix.size(); ++i) matrix[i] = static_cast<float>(i) + 0.5F;
  const auto bytes = std::as_bytes(std::span(matrix));
  ASSERT_OK(WriteOne(files.PathOf("in.safetensors"), "w", {6, 8}, {bytes.begin(), bytes.end()}));
  std::ofstream(files.PathOf("rules")) << "w  [-, model] as BF16\n";

  const ProgramResult result = RunShell(Demo(
      absl::StrCat(files.PathOf("in.safetensors"), " --json --strategy relay --destination-rules ",
                   files.PathOf("rules"), " --output ", files.PathOf("out"))));
  ASSERT_EQ(result.exit_status, 0) << result.error;
  EXPECT_TRUE(nlohmann::json::parse(result.out).at("verified").get<bool>());

  ASSERT_OK_AND_ASSIGN(const SafetensorsFile file,
                       SafetensorsFile::Open(files.PathOf("out/node-3.0.safetensors")));
  EXPECT_EQ(file.header().tensors[0].spec.type, DataType::kBF16);
  // Such numbers fit in the upper half of an F32.
  std::vector<std::byte> expected;
  for (size_t row = 0; row < 6; ++row) {
    for (size_t column = 4; column < 8; ++column) {
      const auto upper = bytes.subspan((row * 8 + column) * 4 + 2, 2);
      expected.insert(expected.end(), upper.begin(), upper.end());
    }
  }
  const std::span<const std::byte> found = file.Bytes(0);
  EXPECT_EQ(std::vector<std::byte>(found.begin(), found.end()), expected);
  ExpectNothingIsLeft();
}

// Of the stand-in: what the demo's environment is, and its flags.
struct DemoGpus {
  DemoGpus()
      : environment(absl::StrCat(
            "CROSSMESH_STANDIN_DEVICES=4 CROSSMESH_STANDIN_KERNELS=", StandInKernelsPath(), " ")),
        flags(absl::StrCat(" --devices gpu --worker-flag=--cuda-library=", StandInDriverPath(),
                           " --worker-flag=--nccl-library=", StandInNcclPath())) {
    for (int number = 0; number < 4; ++number) {
      absl::StrAppend(&flags, " --gpu ", StandInUuid(number));
    }
  }

  std::string environment;
  std::string flags;
};

class DemoFp8Test : public DemoTest, public testing::WithParamInterface<bool> {};

TEST_P(DemoFp8Test, SendsScalesBesideFp8) {
  const bool on_gpus = GetParam();
  const TemporaryFolder files;
  // In BF16, 128 rows each of 1, 2, 3 and 4.
  constexpr int64_t kColumns = 130;
  std::vector<uint16_t> matrix;
  for (const uint16_t number : {0x3F80, 0x4000, 0x4040, 0x4080}) {
    matrix.insert(matrix.end(), 128 * kColumns, number);
  }
  SafetensorsEntry entry{.spec = {.name = "w.weight", .type = DataType::kBF16},
                         .bytes = std::as_bytes(std::span(matrix))};
  entry.spec.shape = Shape::Create(std::vector<int64_t>{512, kColumns}).value();
  ASSERT_OK(WriteSafetensors(files.PathOf("in.safetensors"), {&entry, 1}));
  std::ofstream(files.PathOf("rules")) << "w.weight  [model, -] as F8_E4M3\n";

  const DemoGpus gpus;
  const std::string demo =
      Demo(absl::StrCat(files.PathOf("in.safetensors"), " --json --destination-rules ",
                        files.PathOf("rules"), " --output ", files.PathOf("out")));
  const ProgramResult result =
      RunShell(on_gpus ? absl::StrCat(gpus.environment, demo, gpus.flags) : demo);
  ASSERT_EQ(result.exit_status, 0) << result.error;
  EXPECT_TRUE(nlohmann::json::parse(result.out).at("verified").get<bool>());

  // The second half of the rows.
  ASSERT_OK_AND_ASSIGN(const SafetensorsFile file,
                       SafetensorsFile::Open(files.PathOf("out/node-3.0.safetensors")));
  ASSERT_EQ(file.header().tensors.size(), 2);
  for (size_t i = 0; i < 2; ++i) {
    const TensorSpec& spec = file.header().tensors[i].spec;
    const std::span<const std::byte> found = file.Bytes(static_cast<int64_t>(i));
    if (spec.name == "w.weight_scale_inv") {
      std::array<float, 4> scales = {};
      ASSERT_EQ(found.size(), sizeof(scales));
      std::memcpy(scales.data(), found.data(), found.size());
      EXPECT_THAT(scales, testing::ElementsAre(3 / 448.0F, 3 / 448.0F, 4 / 448.0F, 4 / 448.0F));
    } else {
      EXPECT_EQ(spec.type, DataType::kF8E4M3);
      EXPECT_TRUE(std::ranges::all_of(found, [](std::byte b) { return b == std::byte{0x7E}; }));
    }
  }
  ExpectNothingIsLeft();
}

INSTANTIATE_TEST_SUITE_P(All, DemoFp8Test, testing::Bool(),
                         [](const auto& test) { return test.param ? "gpu" : "host"; });

TEST_F(DemoTest, MovesBetweenGpus) {
  const TemporaryFolder files;
  const std::vector<std::byte> matrix(256 * 512 * 4, std::byte{5});
  ASSERT_OK(WriteOne(files.PathOf("w.safetensors"), "w", {256, 512}, matrix));
  std::ofstream(files.PathOf("rules")) << "w  [-, model]\n";
  const DemoGpus gpus;
  const ProgramResult result = RunShell(absl::StrCat(
      gpus.environment, Demo(absl::StrCat(files.PathOf("w.safetensors"), " --json", gpus.flags,
                                          " --destination-rules ", files.PathOf("rules")))));
  ASSERT_EQ(result.exit_status, 0) << result.error;
  const nlohmann::json document = nlohmann::json::parse(result.out, nullptr, false);
  ASSERT_TRUE(document.is_object()) << "expected one JSON document, found: " << result.out;
  EXPECT_THAT(document.at("source").get<std::string>(), HasSubstr("node-0.1"));
  EXPECT_EQ(document.at("strategies").size(), std::size(kAllStrategies));
  EXPECT_TRUE(document.at("verified").get<bool>());
  ExpectNothingIsLeft();
}

TEST_F(DemoTest, InterruptedInTheMiddleLeavesNothingBehind) {
  absl::StatusOr<ChildProcess> demo = ChildProcess::Start(
      {.program = "/bin/sh", .arguments = {"-c", Demo("")}, .log_path = "/dev/null"});
  ASSERT_OK(demo.status());
  const auto there = [&](const std::string& name) {
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder_.path(), error)) {
      if (fs::exists(entry.path() / name, error)) return true;
    }
    return false;
  };
  ASSERT_TRUE(WaitUntil(absl::Seconds(30), [&] { return there("node-3.ready"); }));
  ASSERT_EQ(::kill(demo->pid(), SIGINT), 0);
  std::optional<std::string> exit;
  EXPECT_TRUE(WaitUntil(absl::Seconds(10), [&] { return (exit = demo->ExitText()).has_value(); }));
  EXPECT_EQ(exit, "exit status 130");
  ExpectNothingIsLeft();
}

TEST_F(DemoTest, AKilledDemoTakesItsDaemonsAlong) {
  absl::StatusOr<ChildProcess> demo = ChildProcess::Start(
      {.program = "/bin/sh", .arguments = {"-c", Demo("")}, .log_path = "/dev/null"});
  ASSERT_OK(demo.status());
  ASSERT_TRUE(WaitUntil(absl::Seconds(30), [&] {
    return !ProcessesWith(folder_.path() + "/crossmesh-demo").empty();
  }));
  demo->Kill();
  EXPECT_TRUE(WaitUntil(absl::Seconds(5), [&] {
    return ProcessesWith(folder_.path() + "/crossmesh-demo").empty();
  })) << ProcessesWith(folder_.path());
}

TEST_F(DemoTest, RefusesBeforeItStartsAnything) {
  const ProgramResult result = RunShell(Demo("--json --strategy telepathy"));
  EXPECT_NE(result.exit_status, 0);
  const nlohmann::json document = nlohmann::json::parse(result.out, nullptr, false);
  ASSERT_TRUE(document.is_object()) << result.out;
  EXPECT_THAT(document.at("error").at("message").get<std::string>(), HasSubstr("telepathy"));
  ExpectNothingIsLeft();
}

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
  EXPECT_THAT(storage("trim most node-0.0").error, HasSubstr("not found"));
  EXPECT_EQ(storage("delete more node-0.0").exit_status, 0);
  EXPECT_THAT(storage("delete more node-0.0").error, HasSubstr("not found"));
  EXPECT_THAT(storage("delete more node-7.0").error, HasSubstr("socket of host \"node-7\""));
}

}  // namespace
}  // namespace crossmesh
