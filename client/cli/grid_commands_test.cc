// The commands about grids, as a user gives them.

#include "client/cli/testing/program_run.h"
#include "common/testing/temporary_folder.h"

#include <fstream>
#include <string>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kSmallModel[] =
    "--layers 8 --hidden 1024 --heads 16 --vocabulary 32000 --batch 64 --sequence 512 ";
constexpr char kEightGpus[] = "--gpu-host h100x8 --count 8 ";

std::string GridOutput(const std::string& arguments) {
  const ProgramResult result = Crossmesh(absl::StrCat("grid ", arguments));
  EXPECT_EQ(result.exit_status, 0) << result.error;
  return result.out;
}

nlohmann::json GridJson(const std::string& arguments) {
  return nlohmann::json::parse(GridOutput(absl::StrCat(arguments, " --json")));
}

std::string GridError(const std::string& arguments) {
  const ProgramResult result = Crossmesh(absl::StrCat("grid ", arguments));
  EXPECT_NE(result.exit_status, 0) << result.out;
  EXPECT_EQ(result.out, "");
  return result.error;
}

TEST(GridCommandsTest, GridsAreRankedWithAxesAndRefusals) {
  const std::string rank = absl::StrCat("rank ", kSmallModel, kEightGpus);
  EXPECT_THAT(GridOutput(rank),
              AllOf(StartsWith("GRID"), HasSubstr("EXPOSED BY AXIS"), HasSubstr("described"),
                    HasSubstr("keep to all rules"), HasSubstr("8 devices of hosts h100x8"),
                    HasSubstr("REFUSED BY"), HasSubstr("expert=2 needs a model with experts")));
  const nlohmann::json document = GridJson(absl::StrCat(rank, "--top 1000"));
  ASSERT_EQ(document["grids"].size(), document["feasible"]);
  double before = 0;
  for (const nlohmann::json& grid : document["grids"]) {
    double parts = 0;
    for (const auto& [name, seconds] : grid["parts_seconds"].items())
      parts += seconds.get<double>();
    EXPECT_NEAR(parts, grid["seconds"].get<double>(), 1e-12);
    EXPECT_GE(grid["seconds"].get<double>(), before);
    before = grid["seconds"];
  }
  // 84 ways to give three twos to seven axes.
  int64_t refused = 0;
  for (const nlohmann::json& entry : document["refused"]) refused += entry["count"].get<int64_t>();
  EXPECT_EQ(document["feasible"].get<int64_t>() + refused, 84);
  EXPECT_EQ(GridOutput(rank), GridOutput(rank));
}

TEST(GridCommandsTest, RefusedGridsAreListedWithTheirFix) {
  // No power of two: the three has to go somewhere, and only the batch has one.
  const std::string rank =
      "rank --layers 8 --hidden 1024 --heads 16 --batch 192 --sequence 512 --gpu-host h100x8 "
      "--count 24 --top 1000 --refused";
  EXPECT_THAT(
      GridOutput(rank),
      AllOf(HasSubstr("r=3 does not divide 16 heads; the nearest that do: r=2, r=4"),
            HasSubstr("pipeline=3 does not divide 8 layers"), HasSubstr("z=3 does not divide")));
  const nlohmann::json document = GridJson(rank);
  ASSERT_FALSE(document["grids"].empty());
  for (const nlohmann::json& grid : document["grids"]) {
    EXPECT_EQ(grid["axes"]["data"]["size"].get<int64_t>() % 3, 0) << grid["grid"];
  }
  // 84 * 7 ways to give three twos and a three to seven axes.
  EXPECT_EQ(document["grids"].size() + document["refused_grids"].size(), 588);
}

TEST(GridCommandsTest, AGridIsExplained) {
  const std::string explain = absl::StrCat("explain r=2,z=2,pipeline=2 ", kSmallModel, kEightGpus);
  EXPECT_THAT(
      GridOutput(explain),
      AllOf(HasSubstr("PART OF THE STEP"), HasSubstr("the product of the weight gradient"),
            HasSubstr("the backward of earlier layers"), HasSubstr("1f1b, "),
            HasSubstr("simulated op by op"), HasSubstr("MEMORY OF"), HasSubstr("optimizer state")));
  const nlohmann::json document = GridJson(explain);
  EXPECT_EQ(document["grid"], "r=2,z=2,pipeline=2");
  EXPECT_EQ(document["axes"]["z"]["inside"], 2);
  EXPECT_EQ(document["axes"]["z"]["source"], "described");
  double exposed = 0;
  for (const nlohmann::json& use : document["collectives"]) {
    EXPECT_LE(use["hidden_seconds"].get<double>(), use["seconds"].get<double>());
    if (use["axis"] != "r") continue;
    exposed += use["count"].get<double>() *
               (use["seconds"].get<double>() - use["hidden_seconds"].get<double>());
  }
  EXPECT_NEAR(exposed, document["axes"]["r"]["exposed_seconds"].get<double>(), 1e-9);
  EXPECT_GT(document["simulated_schedule_seconds"].get<double>(), 0);
}

TEST(GridCommandsTest, GridsAreComparedSideBySide) {
  const std::string compare = absl::StrCat("compare z=8 r=8 ", kSmallModel, kEightGpus);
  EXPECT_THAT(GridOutput(compare),
              AllOf(HasSubstr("over the first"), HasSubstr("1.000"), HasSubstr("r exposed"),
                    HasSubstr("z sent"), Not(HasSubstr("data"))));
  const nlohmann::json document = GridJson(compare);
  ASSERT_EQ(document["grids"].size(), 2);
  EXPECT_EQ(document["grids"][1]["grid"], "r=8");
}

TEST(GridCommandsTest, MemoryIsShownTermByTermWhetherItFitsOrNot) {
  const std::string memory =
      absl::StrCat("memory data=8 z=8 --memory 2000000000 ", kSmallModel, kEightGpus);
  EXPECT_THAT(GridOutput(memory),
              AllOf(HasSubstr("gathered weights"), HasSubstr("does not fit"),
                    HasSubstr("data=8 needs "), HasSubstr("the nearest fix: ")));
  const nlohmann::json document = GridJson(memory);
  EXPECT_EQ(document["memory_bytes_max"], 2'000'000'000);
  for (const nlohmann::json& grid : document["grids"]) {
    double sum = 0;
    for (const auto& [term, bytes] : grid["terms"].items()) sum += bytes.get<double>();
    EXPECT_EQ(sum, grid["bytes"].get<double>());
  }
}

TEST(GridCommandsTest, ModelsOfTheLiteratureAreRankedAsTheirAuthorsDo) {
  const std::string rank =
      "rank --model GPT-80B --batch 1024 --sequence 2048 --cluster perlmutter_measured --count "
      "1024 ";
  EXPECT_THAT(GridOutput(absl::StrCat(rank, "--cost-model axonn --top 1")),
              AllOf(HasSubstr("r=8,z=128  "), HasSubstr("4.70 s"), HasSubstr("230 grids")));
  EXPECT_THAT(GridOutput(absl::StrCat(rank, "--cost-model axonn_helper --top 1")),
              AllOf(HasSubstr("z=1024  "), HasSubstr("5.31 s")));
  EXPECT_EQ(GridJson(absl::StrCat(rank, "--cost-model axonn"))["grids"][1]["grid"],
            "r=8,z=64,data=2");
  EXPECT_THAT(GridError(absl::StrCat("rank ", kSmallModel, kEightGpus, "--cost-model axonn")),
              HasSubstr("expected --cluster with --count"));
}

TEST(GridCommandsTest, MeasuredPositionsAndConfigsAreReadFromFiles) {
  const TemporaryFolder folder;
  const std::string rates = folder.PathOf("rates.json");
  std::ofstream(rates) << R"({"positions": [{"inner": 1, "own": 8, "bytes_per_second": 1000}]})";
  const nlohmann::json slow =
      GridJson(absl::StrCat("explain z=8 ", kSmallModel, kEightGpus, "--rates ", rates));
  EXPECT_EQ(slow["axes"]["z"]["source"], "measured");
  EXPECT_EQ(slow["axes"]["z"]["bytes_per_second"], 1000);
  const std::string config = folder.PathOf("config.json");
  std::ofstream(config) << R"({"model_type": "llama", "hidden_act": "silu", "hidden_size": 1024,
      "intermediate_size": 4096, "num_attention_heads": 16, "num_hidden_layers": 8,
      "num_key_value_heads": 4, "vocab_size": 32000})";
  EXPECT_THAT(
      GridOutput(absl::StrCat("rank --batch 8 --sequence 512 ", kEightGpus, "--model ", config)),
      HasSubstr("of keys and values"));
}

TEST(GridCommandsTest, WhatCannotBeIsNamed) {
  const struct {
    const char* arguments;
    const char* error;
  } mistakes[] = {
      {"explain r=3 --gpu-host h100x8 --count 3", "grid r=3: r=3 does not divide 16 heads"},
      {"explain r=2 --gpu-host h100x8 --count 8",
       "expected sizes whose product is the 8 devices, found 2"},
      {"explain y=2 --gpu-host h100x8 --count 8", "found \"y=2\""},
      {"explain data=7 --gpu-host h100x8 --count 7", "does not divide 64 sequences"},
      {"rank", "network: expected one of --devices, --gpu-host and --cluster, found none"},
      {"rank --gpu-host h100x8 --cluster alps_theory --count 8", "found several"},
      {"rank --gpu-host h100x8", "--count: expected 1 to 65536, found 0"},
      {"rank --gpu-host h100x9 --count 8", "--gpu-host: "},
      {"rank --cluster mars --count 8", "--cluster: cluster: expected one of perlmutter_measured"},
      {"rank --devices a.0-7 --count 8", "which says how many there are"},
      {"rank --devices a.0-7 --order c,r", "--order: order of axes"},
      {"rank --devices a.0-7 --most q=2", "--most: grid: expected axes"},
      {"rank --devices a.0-7 --overlaps none,oar", "expected none by itself"},
      {"rank --devices a.0-7 --zero 4", "zero: expected 0 to 3, found 4"},
      {"rank --devices a.0-7 --chunks 2", "chunks: expected more than 1 with schedule"},
      {"rank --devices a.0-7 --memory 1000000", "the least is "},
      {"rank --devices a.0-7 --model GPT-5B", "expected --model or the sizes of one, found both"},
      {"rank --devices a.0-7 --device tpu", "--device: device: expected one of a100"}};
  for (const auto& [arguments, error] : mistakes) {
    EXPECT_THAT(GridError(absl::StrCat(arguments, " ", kSmallModel)), HasSubstr(error))
        << arguments;
  }
  EXPECT_THAT(GridError(absl::StrCat("rank --batch 8 --sequence 8 ", kEightGpus)),
              HasSubstr("expected --model, or --layers, --hidden and --heads"));
  EXPECT_THAT(GridError(absl::StrCat("rank --model none.json --batch 8 --sequence 8 ", kEightGpus)),
              HasSubstr("model: expected a config.json, or one of GPT-5B"));
}

TEST(GridCommandsTest, ACubeWhoseSquareDividesNoWidthIsRefused) {
  EXPECT_THAT(GridError("explain c=2,r=2,z=2 --layers 2 --hidden 18 --heads 6 --batch 64 "
                        "--sequence 64 --activations scattered --gpu-host h100x8 --count 8"),
              HasSubstr("a cube of q=2 needs widths that q^2=4 divides, and qkv has one of 18"));
}

}  // namespace
}  // namespace crossmesh
