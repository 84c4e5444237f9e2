// The command, as a user gives it.

#include "client/cli/testing/program_run.h"
#include "common/testing/temporary_folder.h"

#include <cstdint>
#include <fstream>
#include <string>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// Two hosts of four devices; F32.
constexpr char kTwoHosts[] =
    "redistribute --mesh 'node=2,gpu=4 on a.0-3,b.0-3' --shape '[4096, 4096]' "
    "--source '[node*gpu, -]' --destination '[-, -]' ";

TEST(RedistributeCommandTest, StepsAreShownBesideThoseOfOthers) {
  const ProgramResult result = Crossmesh(absl::StrCat(kTwoHosts, "--cap 100000000"));
  EXPECT_EQ(result.exit_status, 0) << result.error;
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("1.00 x the least of any plan (58.7 MB)"),
                    HasSubstr("83.9 MB on the fullest device, of 100.0 MB"),
                    HasSubstr("workers       1 tensor in 1 step, as fast as any plan; "
                              "by the search: 1 tensor in 2 steps; predicted 2.68 ms")));
  const nlohmann::json document = DocumentOf(absl::StrCat(kTwoHosts, "--cap 100000000"));
  ASSERT_EQ(document["steps"].size(), 2);
  EXPECT_EQ(document["steps"][0]["axes"], "node");
  EXPECT_EQ(document["bytes"], 7 * 8'388'608);
  EXPECT_EQ(document["summary"]["strategy"], "redistribute");
  // Without strides, nodes come last, with all that a node has.
  const nlohmann::json& greedy = document["baselines"]["dtensor_greedy"];
  EXPECT_GT(greedy["seconds"].get<double>(), 1.5 * document["seconds"].get<double>());
}

TEST(RedistributeCommandTest, SlowLinksOfTheNetworkDecideTheOrder) {
  const TemporaryFolder folder;
  const std::string network = folder.PathOf("network.json");
  std::ofstream(network) << R"({"hosts": [
      {"name": "a", "nics": [{"name": "eth0", "out_bytes_per_second": 1000,
                              "in_bytes_per_second": 1000}]},
      {"name": "b", "nics": [{"name": "eth0", "out_bytes_per_second": 1000,
                              "in_bytes_per_second": 1000}]}]})";
  const nlohmann::json fast = DocumentOf(kTwoHosts);
  const nlohmann::json slow = DocumentOf(absl::StrCat(kTwoHosts, "--topology ", network));
  EXPECT_GT(slow["seconds"].get<double>(), 1000 * fast["seconds"].get<double>());
}

TEST(RedistributeCommandTest, AStepThatDoesNotFitIsNotTaken) {
  const nlohmann::json free = DocumentOf(absl::StrCat(kTwoHosts, "--no-relay"));
  EXPECT_GT(free["peak_live_bytes"], 80'000'000);
  const nlohmann::json tight = DocumentOf(absl::StrCat(kTwoHosts, "--cap 76000000 --no-relay"));
  EXPECT_LE(tight["peak_live_bytes"], 76'000'000);
  EXPECT_GT(tight["seconds"], free["seconds"]);
  // The whole and an eighth.
  EXPECT_THAT(ErrorOf(absl::StrCat(kTwoHosts, "--cap 75000000 --no-relay")),
              HasSubstr("cap on live bytes: expected at least 75497472, found 75000000"));
  EXPECT_THAT(ErrorOf(absl::StrCat(kTwoHosts, "--cap 76000000 --staging-bytes 1000000 --no-relay")),
              HasSubstr("expected at least 76497472, found 76000000"));
}

TEST(RedistributeCommandTest, SummandsAreReducedOrStay) {
  const std::string command =
      "redistribute --mesh 'x=2,y=2 on a.0-3' --shape '[8]' --source '[-]' --destination '[x]' "
      "--objective bytes --source-partial x,y ";
  EXPECT_THAT(Crossmesh(command).out, HasSubstr("partial sum {x*y}"));
  const nlohmann::json kept =
      DocumentOf(absl::StrCat(command, "--destination-partial y --reduction max"));
  EXPECT_EQ(kept["destination"], "[x] partial max {y}");
  ASSERT_EQ(kept["steps"].size(), 1);
  EXPECT_EQ(kept["steps"][0]["kind"], "reduce_scatter");
}

TEST(RedistributeCommandTest, WhatNeedsNoStepOrNoMethodKnowsIsPrintedWithoutEmptyTables) {
  const std::string mesh = "redistribute --mesh 'x=4 on a.0-3' ";
  EXPECT_THAT(Crossmesh(mesh + "--shape '[8]' --source '[x]' --destination '[x]'").out,
              HasSubstr("nothing: every device has what it is to have"));
  const ProgramResult uneven =
      Crossmesh(mesh + "--shape '[7, 10]' --source '[x, -] chunk' --destination '[-, x] chunk'");
  EXPECT_THAT(uneven.out, AllOf(HasSubstr("one_axis has no answer: "), HasSubstr("relay"),
                                Not(HasSubstr("BESIDE"))));
}

// As PyTorch cuts for FSDP, and as models are cut for tensor parallelism.
TEST(RedistributeCommandTest, RulesOfTwoKindsForWhatDoesNotDivideAreOneMove) {
  const std::string model =
      "redistribute --manifest examples/gpt2.json --mesh 'fsdp=4 on a.0-1,b.0-1' "
      "--source-rules examples/gpt2.fsdp.rules --destination-mesh 'replica=2,model=2 on "
      "a.0-1,b.0-1' --destination-rules examples/gpt2.tp.rules ";
  const nlohmann::json document = DocumentOf(absl::StrCat(model, "--explain"));
  EXPECT_THAT(document["summary"]["search"].get<std::string>(),
              StartsWith("148 tensors in 1 step"));
  const nlohmann::json& words = document["pairs"][0];
  EXPECT_EQ(words["of"], "tensor \"wte.weight\" of shape [50257, 768]");
  EXPECT_EQ(words["source"], "[replica*model, -] chunk");
  ASSERT_EQ(words["steps"].size(), 1);
  EXPECT_EQ(words["steps"][0]["kind"], "relay");
  const nlohmann::json two = DocumentOf(
      "redistribute --mesh 'x=2,y=2 on a.0-3' --shape '[9, 8]' --source '[x*y, -] nested_chunk' "
      "--destination '[x*y, -] balanced'");
  EXPECT_EQ(two["source"], "[x*y, -] nested_chunk");
  EXPECT_EQ(two["destination"], "[x*y, -] balanced");
  EXPECT_EQ(two["bytes"], 0);
}

TEST(RedistributeCommandTest, ItIsDrawn) {
  const TemporaryFolder folder;
  const std::string path = folder.PathOf("redistribution.svg");
  EXPECT_EQ(Crossmesh(absl::StrCat(kTwoHosts, "--svg ", path)).exit_status, 0);
  EXPECT_THAT(ReadAll(path),
              AllOf(StartsWith("<?xml "), HasSubstr(">dtensor_greedy</text>"),
                    HasSubstr("[node*gpu, -] to [-, -]"), HasSubstr(">Live over time</text>"),
                    HasSubstr(">8 devices</text>"), EndsWith("</svg>\n")));
}

TEST(RedistributeCommandTest, AProgramIsPrintedAlone) {
  for (const char* framework : {"torch", "jax"}) {
    const ProgramResult result =
        Crossmesh(absl::StrCat(kTwoHosts, "--no-relay --emit ", framework));
    EXPECT_EQ(result.exit_status, 0) << result.error;
    EXPECT_THAT(result.out, AllOf(StartsWith("\"\"\""), HasSubstr("PROGRAM = {"),
                                  HasSubstr("def redistribute(local):")));
  }
}

// All tensors of a model, on four devices.
constexpr char kModelByRules[] =
    "redistribute --manifest examples/gpt2.json --mesh 'fsdp=4 on a.0-1,b.0-1' "
    "--source '[fsdp, ...] chunk' --destination-mesh 'replica=2,model=2 on a.0-1,b.0-1' "
    "--destination-rules examples/gpt2.tp.rules ";

TEST(RedistributeCommandTest, AModelIsPlannedAsOneAndExplainedPairByPair) {
  const ProgramResult planned = Crossmesh(kModelByRules);
  EXPECT_EQ(planned.exit_status, 0) << planned.error;
  EXPECT_THAT(planned.out, AllOf(HasSubstr("redistribute"), HasSubstr("device peak"),
                                 Not(HasSubstr("one_axis"))));
  const nlohmann::json document = DocumentOf(absl::StrCat(kModelByRules, "--explain"));
  EXPECT_EQ(document["summary"]["strategy"], "redistribute");
  int64_t tensors = 0;
  for (const nlohmann::json& pair : document["pairs"]) {
    tensors += pair["tensors"].get<int64_t>();
    EXPECT_TRUE(pair["baselines"].contains("dtensor_greedy")) << pair["of"];
  }
  EXPECT_EQ(document["summary"]["tensors"], std::to_string(tensors));
  EXPECT_GT(document["pairs"].size(), 3);
  const ProgramResult explained = Crossmesh(absl::StrCat(kModelByRules, "--explain"));
  // By the axes that the meshes are called by, and by those that they have in common.
  EXPECT_THAT(explained.out, AllOf(HasSubstr("all_gather"), HasSubstr("replica*model"),
                                   HasSubstr("more of shape"), HasSubstr("BESIDE")));
  EXPECT_THAT(ErrorOf(absl::StrCat(kModelByRules, "--emit torch")),
              HasSubstr("expected one pair of layouts, found "));
}

TEST(RedistributeCommandTest, TheCapOfAModelIsForAllTensorsTogether) {
  const nlohmann::json free = DocumentOf(kModelByRules);
  const int64_t peak = std::stoll(free["peak_device_bytes"].get<std::string>());
  const std::string error = ErrorOf(absl::StrCat(kModelByRules, "--cap 1000000"));
  EXPECT_THAT(error, AllOf(HasSubstr("expected at most 1000000"), HasSubstr("found ")));
  // The least has nothing between steps: source, destination and its shadow.
  const int64_t least = std::stoll(error.substr(error.rfind("found ") + 6));
  EXPECT_LE(least, peak);
  EXPECT_EQ(Crossmesh(absl::StrCat(kModelByRules, "--cap ", least)).exit_status, 0);
  EXPECT_NE(Crossmesh(absl::StrCat(kModelByRules, "--cap ", least - 1)).exit_status, 0);
}

TEST(RedistributeCommandTest, ASourceThatIsReleasedIsCountedOnce) {
  const auto peak_of = [](const std::string& flags) {
    const nlohmann::json summary = DocumentOf(absl::StrCat(kModelByRules, flags));
    return std::stoll(summary["peak_device_bytes"].get<std::string>());
  };
  EXPECT_LT(peak_of("--release-source"), peak_of("--in-place"));
  EXPECT_THAT(ErrorOf(absl::StrCat(kModelByRules, "--release-source --shadow")),
              HasSubstr("release_source: expected binding in_place"));
}

TEST(RedistributeCommandTest, AMethodOfTheLiteratureTakesTheSteps) {
  const nlohmann::json document = DocumentOf(absl::StrCat(kTwoHosts, "--baseline dtensor_greedy"));
  EXPECT_EQ(document["steps"].size(), document["baselines"]["dtensor_greedy"]["steps"].size());
  EXPECT_EQ(document["origin"], "baseline");
}

TEST(RedistributeCommandTest, WhereStoragesAreNamedItRunsAndExplainingDoesNot) {
  const std::string storages = absl::StrCat(
      kModelByRules,
      "--source-storage a --destination-storage b --controller 127.0.0.1:1 --timeout 1s ");
  EXPECT_THAT(ErrorOf(storages), HasSubstr("controller 127.0.0.1:1"));
  EXPECT_THAT(ErrorOf(absl::StrCat(kModelByRules, "--source-storage a --destination-storage b")),
              HasSubstr("--controller"));
  EXPECT_EQ(
      Crossmesh(absl::StrCat(kModelByRules, "--source-storage a --destination-storage b --explain"))
          .exit_status,
      0);
}

TEST(RedistributeCommandTest, WhatMeansNothingIsNamed) {
  const std::string mesh = "redistribute --mesh 'x=2,y=2 on a.0-3' --shape '[8, 8]' ";
  const struct {
    const char* flags;
    const char* error;
  } mistakes[] = {
      {"--source '[z, -]' --destination '[-, -]'", "names axis z"},
      {"--source '[x, -]' --destination '[-]'", "destination layout of tensor \"tensor\""},
      {"--source '[x, x]' --destination '[-, -]'", "axis x is used twice"},
      {"--source '[x, -]' --destination '[-, -]' --source-partial x",
       "x in dimension 0 and x in partial"},
      {"--source '[x, -]' --destination '[-, -]' --destination-partial y",
       "among the source's, {}, found y"},
      {"--source '[x, -]' --destination '[-, -]' --source-partial y --dtype BOOL",
       "BOOL cannot be reduced"},
      {"--source '[x, -]' --destination '[-, -]' --source-partial y --dtype F8_E4M3",
       "F8_E4M3 cannot be reduced"},
      {"--source '[x, -]' --destination '[-, -]' --source-partial y --reduction sum,max",
       "--reduction: sum,max not in"},
      {"--source '[x, -]' --destination '[-, -]' --cap 0", "expected at least 1 byte, found 0"},
      {"--source '[x, -]' --destination '[-, -]' --dtype F99", "--dtype: data type \"F99\""},
      {"--source '[x, -] ? ' --destination '[-, -]'", "--source: "},
      {"--source '[x, -]' --destination '[-, -]' --destination-mesh 'z=4 on a.1-4'",
       "expected meshes with the same devices"},
      {"--source '[x, -]' --destination '[-, -]' --manifest small.json", "neither --manifest"},
      {"--source '[x, -]' --destination '[-, -]' --source-rules a.rules",
       "--source-rules and --source: expected one of them"},
      {"--source '[x, -]' --destination '[-, -]' --detach", "--detach: expected --source-storage"},
      {"--source '[x, -]' --destination '[-, -]' --baseline fastest", "--baseline"},
      {"--source '[x, y]' --destination '[y, x]' --emit jax", "for which JAX has none"},
  };
  for (const auto& [flags, error] : mistakes) {
    EXPECT_THAT(ErrorOf(absl::StrCat(mesh, flags)), HasSubstr(error)) << flags;
  }
}

}  // namespace
}  // namespace crossmesh
