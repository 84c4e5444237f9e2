// Plans for hosts with GPUs, as a user asks for them without a controller.

#include "client/cli/testing/program_run.h"
#include "common/testing/temporary_folder.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

using testing::HasSubstr;

constexpr const char* kPlan =
    "plan --manifest examples/gpt2.json --source 'fsdp=8 on a.0-7' "
    "--source-rules examples/gpt2.fsdp.rules --destination 'replica=4,model=2 on b.0-7' "
    "--destination-rules examples/gpt2.tp.rules --replica-axes replica --json";

nlohmann::json SummaryOf(const std::string& flags) {
  const ProgramResult result = Crossmesh(absl::StrCat(kPlan, " ", flags));
  EXPECT_EQ(result.exit_status, 0) << result.error;
  return nlohmann::json::parse(result.out, nullptr, /*allow_exceptions=*/false)["summary"];
}

TEST(GpuHostsTest, APresetIsTheNetworkFileThatItPrints) {
  const TemporaryFolder folder;
  const std::string file = folder.PathOf("network.json");
  const ProgramResult preset = Crossmesh("network preset h100x8 a b");
  ASSERT_EQ(preset.exit_status, 0) << preset.error;
  std::ofstream(file) << preset.out;
  const nlohmann::json by_file = SummaryOf("--topology " + file);
  const nlohmann::json by_preset = SummaryOf("--gpu-host h100x8");
  EXPECT_EQ(by_file["id"], by_preset["id"]);
  EXPECT_EQ(by_file["predicted_seconds"], by_preset["predicted_seconds"]);
  EXPECT_THAT(by_preset["search"].get<std::string>(), HasSubstr(" steps, "));
  EXPECT_FALSE(by_preset.value("assumed_rates", false));
}

TEST(GpuHostsTest, WhatIsNoneIsAnsweredWithWhatThereIs) {
  const auto error_of = [](const std::string& arguments) {
    const ProgramResult result = Crossmesh(arguments);
    EXPECT_NE(result.exit_status, 0) << arguments;
    return result.error;
  };
  EXPECT_THAT(error_of(absl::StrCat(kPlan, " --gpu-host v100")),
              HasSubstr("--gpu-host v100: GPU host: expected a100x8, b200x8, h100x8, l40s-pcie"));
  EXPECT_THAT(error_of("network preset v100 a"), HasSubstr("found \"v100\""));
  if (!std::filesystem::exists("/proc/driver/nvidia")) {
    EXPECT_THAT(error_of("doctor --network a"), HasSubstr("no GPU in /sys/bus/pci/devices"));
  }
  EXPECT_THAT(error_of(absl::StrCat(kPlan, " --gpu-host h100x8 --topology n.json")),
              HasSubstr("--topology and --gpu-host: expected one of them"));
  EXPECT_THAT(error_of("plan --manifest examples/gpt2.json --source trainer --source-layout '[...]'"
                       " --destination 'x=1 on b.0' --destination-layout '[...]'"
                       " --gpu-host h100x8"),
              HasSubstr("expected meshes as text, found \"trainer\""));
}

}  // namespace
}  // namespace crossmesh
