// The demo, as a user runs it, in host memory and over the stand-ins of GPUs.

#include "client/cli/testing/program_run.h"
#include "client/safetensors/file.h"
#include "client/safetensors/writer.h"
#include "common/testing/child_process.h"
#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_folder.h"
#include "planner/reshard/strategy.h"
#include "tests/live/live_cluster.h"
#include "tests/live/one_tensor.h"
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
  explicit DemoGpus(int count)
      : environment(absl::StrCat("CROSSMESH_STANDIN_DEVICES=", count,
                                 " CROSSMESH_STANDIN_KERNELS=", StandInKernelsPath(), " ")),
        flags(absl::StrCat(" --devices gpu --worker-flag=--cuda-library=", StandInDriverPath(),
                           " --worker-flag=--nccl-library=", StandInNcclPath())) {
    for (int number = 0; number < count; ++number) {
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

  const DemoGpus gpus(4);
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

class DemoOnGpusTest : public DemoTest {
 protected:
  // Of one matrix.
  ProgramResult Move(const DemoGpus& gpus, const std::string& flags) {
    const std::vector<std::byte> matrix(256 * 512 * 4, std::byte{5});
    EXPECT_OK(WriteOne(files_.PathOf("w.safetensors"), "w", {256, 512}, matrix));
    std::ofstream(files_.PathOf("rules")) << "w  [-, model]\n";
    return RunShell(absl::StrCat(
        gpus.environment, Demo(absl::StrCat(files_.PathOf("w.safetensors"), " ", flags, gpus.flags,
                                            " --destination-rules ", files_.PathOf("rules")))));
  }

 private:
  const TemporaryFolder files_;
};

TEST_F(DemoOnGpusTest, EveryStrategyMoves) {
  const ProgramResult result = Move(DemoGpus(4), "--json");
  ASSERT_EQ(result.exit_status, 0) << result.error;
  const nlohmann::json document = nlohmann::json::parse(result.out, nullptr, false);
  ASSERT_TRUE(document.is_object()) << "expected one JSON document, found: " << result.out;
  EXPECT_THAT(document.at("source").get<std::string>(), HasSubstr("node-0.1"));
  EXPECT_EQ(document.at("strategies").size(), std::size(kAllStrategies));
  EXPECT_TRUE(document.at("verified").get<bool>());
  ExpectNothingIsLeft();
}

TEST_F(DemoOnGpusTest, WorkersShareTheGpusThatThereAre) {
  const ProgramResult result = Move(DemoGpus(1), "--strategy relay");
  ASSERT_EQ(result.exit_status, 0) << result.error;
  EXPECT_THAT(result.out, HasSubstr("4 workers share 1 GPU"));
  EXPECT_THAT(result.out, HasSubstr("Every element of all 2 replicas is as it should be."));
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

}  // namespace
}  // namespace crossmesh
