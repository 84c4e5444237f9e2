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
  EXPECT_THAT(GridOutput(absl::StrCat("explain z=8 ", kSmallModel, kEightGpus, "--microbatch 8")),
              HasSubstr(", 1 microbatch of 8\n"));
}

TEST(GridCommandsTest, ADeviceOfAThousandthOfThePeakComputesAThousandTimesAsLong) {
  const std::string explain = absl::StrCat("explain z=8 ", kSmallModel, kEightGpus);
  // That is slow enough that no product waits for memory.
  const nlohmann::json slow = GridJson(absl::StrCat(explain, "--flops 1e9"));
  const nlohmann::json slower = GridJson(absl::StrCat(explain, "--flops 1e6"));
  const auto compute = [](const nlohmann::json& of) {
    return of["parts_seconds"]["compute"].get<double>();
  };
  EXPECT_NEAR(compute(slower) / compute(slow), 1000, 1);
  EXPECT_THAT(GridError(absl::StrCat(explain, "--flops -1")), HasSubstr("flops per second"));
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

TEST(GridCommandsTest, MeasuredProductsAreReadFromAFileAndShownWithTheirSource) {
  const TemporaryFolder folder;
  const std::string products = folder.PathOf("products.json");
  std::ofstream(products) << R"({"products": [
      {"mode": "weight_gradient", "m": 512, "n": 1024, "k": 1024, "flops_per_second": 1000000000000}]})";
  const std::string explain = absl::StrCat("explain z=8 ", kSmallModel, kEightGpus);
  EXPECT_THAT(GridOutput(explain),
              AllOf(HasSubstr("law: 0.78 of the peak, half of it at 80"),
                    HasSubstr("1.1256 times as long, assumed"), Not(HasSubstr("scaled"))));
  const std::string measured = absl::StrCat(explain, "--overlap-slowdown 1 --products ", products);
  EXPECT_THAT(GridOutput(measured),
              AllOf(HasSubstr("law: 0.78 of the peak, half of it at 80"),
                    HasSubstr("law, scaled to what was measured at m=512, n=1024, k=1024"),
                    HasSubstr("1 times as long, given")));
  const nlohmann::json before = GridJson(explain);
  const nlohmann::json after = GridJson(measured);
  EXPECT_GT(after["parts_seconds"]["compute"].get<double>(),
            before["parts_seconds"]["compute"].get<double>());
  EXPECT_EQ(after["parts_seconds"]["slowed by overlap"], 0);
  EXPECT_EQ(before["products"].size() * 3, after["products"].size());
  for (const nlohmann::json& product : after["products"]) {
    const double flops =
        2 * product["m"].get<double>() * product["n"].get<double>() * product["k"].get<double>();
    EXPECT_NEAR(product["seconds"].get<double>() * product["flops_per_second"].get<double>(), flops,
                1e-6 * flops);
  }
  EXPECT_THAT(GridError(absl::StrCat(explain, "--overlap-slowdown 0.5")),
              HasSubstr("overlap slow-down: expected 1 to 100, found 0.5"));
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
      {"rank --devices a.0-7 --pending-scatters 0",
       "pending scatters: expected 1 to 1e+06, found 0"},
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

TEST(GridCommandsTest, TuningIsOnDevicesOfTheClusterAlone) {
  EXPECT_THAT(GridError(absl::StrCat("tune ", kSmallModel, kEightGpus)),
              HasSubstr("expected --devices alone, on the network that the controller knows"));
  EXPECT_THAT(
      GridError("layouts c=5 --layers 1 --hidden 24 --heads 6 --family gpt2 --devices a.0-4"),
      HasSubstr("*wte.weight: expected a multiple of 5"));
  EXPECT_THAT(GridError(absl::StrCat("tune --top 0 --devices a.0-7 ", kSmallModel)),
              HasSubstr("--top and --iterations: expected at least 1, found 0 and 3"));
}

TEST(GridCommandsTest, StepsAreDrawnWithAndWithoutOverlaps) {
  const TemporaryFolder folder;
  const std::string file = folder.PathOf("grid.svg");
  const std::string model =
      "--layers 2 --hidden 1024 --heads 16 --vocabulary 32000 --batch 16 --sequence 512 ";
  GridOutput(absl::StrCat("draw r=2,z=2 r=2,pipeline=2 ", model,
                          "--devices a.0,b.0,c.0,d.0 --without-overlaps --svg ", file));
  EXPECT_THAT(ReadAll(file),
              AllOf(HasSubstr("r=2,z=2, nothing overlaps"), HasSubstr("r=2,z=2: "),
                    HasSubstr("weights, "), HasSubstr("copies"), HasSubstr("rank 1 computes"),
                    HasSubstr("between stages, "), HasSubstr("gradients of weights")));
  EXPECT_THAT(GridError(absl::StrCat("draw z=8 ", model, kEightGpus, "--svg ", file)),
              HasSubstr("network: expected --devices, with or without --topology"));
}

// With the nearest fix for each rule, and grid by grid.
TEST(GridCommandsTest, WhereNoGridWillDoRankShowsWhatRefusesThem) {
  const ProgramResult ranked = Crossmesh(
      "grid rank --layers 4 --hidden 250 --heads 7 --batch 30 --sequence 64 --devices a.0-6 "
      "--refused");
  EXPECT_NE(ranked.exit_status, 0);
  EXPECT_THAT(ranked.error, HasSubstr("expected one that keeps to all rules, found none"));
  EXPECT_THAT(ranked.out, AllOf(HasSubstr("0 of 7 keep to all rules"), HasSubstr("BECAUSE"),
                                HasSubstr("data=7      batch"),
                                HasSubstr("pipeline=7 does not divide 4 layers; the nearest")));
}

TEST(GridCommandsTest, VectorsMayLieOnTheDiagonal) {
  const std::string model = "--layers 2 --hidden 64 --heads 8 --vocabulary 128 ";
  const std::string training = "--batch 16 --sequence 8 --activations scattered --keep-gathered ";
  const std::string devices = "--devices a.0-7 ";
  const nlohmann::json explained =
      GridJson(absl::StrCat("explain c=2,r=2,z=2 --vectors diagonal ", model, training, devices));
  EXPECT_THAT(explained.dump(), HasSubstr("step begin"));
  EXPECT_THAT(
      GridError(absl::StrCat("explain c=2,r=4 --vectors diagonal ", model, training, devices)),
      HasSubstr("vectors on the diagonal need c = r, and these are 2 and 4"));
  EXPECT_THAT(
      GridError(absl::StrCat("rank --vectors diagonal --batch 16 --sequence 8 ", model, devices)),
      HasSubstr("vectors: expected replicated ones beside replicated activations"));
  EXPECT_THAT(GridOutput(absl::StrCat("layouts c=2,r=2,z=2 --vectors diagonal --family gpt2 ",
                                      model, devices)),
              HasSubstr("*h.{l}.ln_?.bias  {[0:16]; ; ; [32:48]; [16:32]; ; ; [48:64]}\n"));
}

// From one grid, over pipeline stages as well, to another, and to servers.
TEST(GridCommandsTest, LayoutsOfGridsArePlannedAsTheyAreShown) {
  const TemporaryFolder folder;
  const auto side = [&](const char* name, const char* grid, const char* devices) {
    const std::string arguments =
        absl::StrCat("layouts ", grid, " --layers 12 --hidden 768 --heads 12 --family gpt2 ",
                     "--devices ", devices);
    const std::string rules = folder.PathOf(absl::StrCat(grid, ".rules"));
    std::ofstream(rules) << GridOutput(arguments);
    const nlohmann::json document = GridJson(arguments);
    EXPECT_THAT(ReadAll(rules), HasSubstr(document["rules"].get<std::string>()));
    return absl::StrCat(" --", name, " '", document["mesh"].get<std::string>(), "' --", name,
                        "-rules ", rules);
  };
  const std::string source = side("source", "c=2,r=2,z=2", "a.0-7");
  for (const std::string& destination :
       {side("destination", "r=4,pipeline=2", "b.0-7"), side("destination", "z=3,data=2", "b.0-5"),
        std::string(" --destination 'replica=2,model=2 on e.0-1,f.0-1' --destination-rules "
                    "examples/gpt2.tp.rules --replica-axes replica")}) {
    const ProgramResult plan = Crossmesh(
        absl::StrCat("plan --manifest examples/gpt2.json", source, destination, " --json"));
    ASSERT_EQ(plan.exit_status, 0) << plan.error;
    EXPECT_THAT(plan.out, HasSubstr("bound"));
  }
}

TEST(GridCommandsTest, LayersHaveGridsOfTheirOwn) {
  const std::string of = absl::StrCat(kSmallModel, kEightGpus);
  EXPECT_THAT(
      GridOutput(absl::StrCat("explain c=2,r=4+z=8@2-3.mlp ", of)),
      AllOf(HasSubstr("JOINT BEFORE"), HasSubstr("layer2.mlp"), HasSubstr("layer4.attention"),
            HasSubstr("all_to_all"), HasSubstr("8 attention, 6 mlp, logits")));
  const nlohmann::json document = GridJson(absl::StrCat("explain c=2,r=4+z=8@2-3.mlp ", of));
  ASSERT_EQ(document["joints"].size(), 4);
  double parts = 0;
  for (const auto& [name, seconds] : document["parts_seconds"].items()) {
    parts += seconds.get<double>();
  }
  EXPECT_NEAR(parts, document["seconds"].get<double>(), 1e-12);
  double joints = 0;
  for (const nlohmann::json& joint : document["joints"]) joints += joint["seconds"].get<double>();
  EXPECT_NEAR(joints, document["parts_seconds"]["joints"].get<double>(), 1e-12);
  // One grid by itself, and said twice, have one price.
  const nlohmann::json alone = GridJson(absl::StrCat("compare r=2,z=4 ", of, "--microbatch 8 "));
  const nlohmann::json beside = GridJson(
      absl::StrCat("compare r=2,z=4 r=2,z=4+r=2,z=4@mlp c=2,r=4+z=8@mlp ", of, "--microbatch 8 "));
  ASSERT_EQ(beside["grids"].size(), 3);
  EXPECT_NEAR(beside["grids"][0]["seconds"].get<double>(),
              alone["grids"][0]["seconds"].get<double>(), 1e-12);
  EXPECT_EQ(beside["grids"][0]["seconds"], beside["grids"][1]["seconds"]);
  EXPECT_THAT(GridOutput(absl::StrCat("compare r=8 r=8+z=8@mlp ", of)), HasSubstr("joints"));
  EXPECT_THAT(GridOutput(absl::StrCat("memory r=8 r=8+z=8@mlp ", of)),
              AllOf(HasSubstr("MEMORY OF"), HasSubstr("of the device")));
}

TEST(GridCommandsTest, GridsOfLayersThatCannotBeAreNamed) {
  const std::string of = absl::StrCat(kSmallModel, kEightGpus);
  const auto error = [&of](const std::string& grids) {
    return GridError(absl::StrCat("explain ", grids, " ", of));
  };
  EXPECT_THAT(error("r=8+z=8@mlps"), HasSubstr("found \"z=8@mlps\""));
  EXPECT_THAT(error("r=8+z=8@8"), HasSubstr("grid z=8@8: expected layers of 0 to 7, or logits"));
  EXPECT_THAT(error("r=8+z=4@mlp"), HasSubstr("grid z=4@mlp: expected 8 devices"));
  EXPECT_THAT(error("r=8+pipeline=8@mlp"), HasSubstr("expected a grid of c, r, z and data"));
  EXPECT_THAT(GridError("explain c=2,r=3+c=3,r=2@mlp --layers 2 --hidden 96 --heads 6 --batch 6 "
                        "--sequence 8 --gpu-host h100x8 --count 6"),
              HasSubstr("expected axes that lie inside each other"));
}

}  // namespace
}  // namespace crossmesh
