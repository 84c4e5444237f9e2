#include "client/cli/testing/program_run.h"

#include <string>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kModel[] =
    "--layers 8 --hidden 1024 --heads 16 --vocabulary 32000 --batch 64 --sequence 512 ";

std::string Explained(const std::string& command) {
  const ProgramResult result = Crossmesh(command);
  EXPECT_EQ(result.exit_status, 0) << result.error;
  return result.out;
}

// What is not of a layer, as sums of vectors, is a row of its own.
TEST(GridByLayerTest, AGridIsExplainedLayerByLayer) {
  const std::string devices = "--devices a.0,b.0,c.0,d.0,e.0,f.0,g.0,h.0 --device a100 ";
  for (const char* const grid : {"r=2,z=4", "c=2,r=2,pipeline=2", "r=2,z=4+z=8@1-2.mlp"}) {
    const std::string explain =
        absl::StrCat("grid explain ", grid, " ", kModel, devices, "--by-layer ");
    EXPECT_THAT(Explained(explain),
                AllOf(HasSubstr("PART OF THE STEP"), HasSubstr("COMPUTES"), HasSubstr("layer7 "),
                      HasSubstr("logits "), HasSubstr("of none "), HasSubstr("as a program: ")));
    const nlohmann::json document =
        nlohmann::json::parse(Explained(absl::StrCat(explain, " --json")));
    ASSERT_EQ(document["layers"].size(), 10);
    double exposed = 0;
    double computes = 0;
    double vectors = 0;
    for (const nlohmann::json& layer : document["layers"]) {
      EXPECT_GE(layer["hidden_seconds"], 0);
      if (layer["layer"] != "") {
        EXPECT_GT(layer["exposed_seconds"], 0) << layer;
        EXPECT_GT(layer["compute_seconds"], 0) << layer;
      } else {
        vectors = layer["exposed_seconds"];
      }
      exposed += layer["exposed_seconds"].get<double>();
      computes += layer["compute_seconds"].get<double>();
    }
    EXPECT_GT(vectors, 0);
    // On one rank a step is what its ops take, and what they wait.
    const bool is_one_rank = !absl::StrContains(grid, "pipeline");
    if (is_one_rank) EXPECT_NEAR(exposed + computes, document["program_seconds"], 1e-9);
    EXPECT_LE(computes, 2 * document["program_seconds"].get<double>());
  }
  const ProgramResult refused = Crossmesh(
      absl::StrCat("grid explain z=8 ", kModel, "--gpu-host h100x8 --count 8 --by-layer"));
  EXPECT_NE(refused.exit_status, 0);
  EXPECT_THAT(refused.error, HasSubstr("expected --devices"));
}

// Of NICs that cannot keep up, with as many as memory has room for, or as was said.
TEST(GridByLayerTest, PendingScattersAreChosenOrGiven) {
  const std::string explain =
      absl::StrCat("grid explain z=8 ", kModel,
                   "--devices a.0,b.0,c.0,d.0,e.0,f.0,g.0,h.0 --device a100 --by-layer ");
  EXPECT_THAT(Explained(explain),
              AllOf(HasSubstr("the fewest with which a step takes no longer than with 8, the most"),
                    HasSubstr("1 of each matrix may be pending, at least; programs choose")));
  const nlohmann::json chosen = nlohmann::json::parse(Explained(absl::StrCat(explain, "--json")));
  EXPECT_EQ(chosen["pending_scatters_max"], 8);
  EXPECT_GE(chosen["pending_scatters"], 1);
  EXPECT_LE(chosen["pending_scatters"], 8);
  EXPECT_LE(chosen["program_seconds"].get<double>(),
            1.001 * chosen["seconds_of_max"].get<double>());
  const std::string of_three = absl::StrCat(explain, "--pending-scatters 3 ");
  EXPECT_THAT(Explained(of_three), AllOf(HasSubstr("pending scatters: 3 of each matrix, given"),
                                         HasSubstr("3 of each matrix may be pending, given")));
  const nlohmann::json given = nlohmann::json::parse(Explained(absl::StrCat(of_three, "--json")));
  EXPECT_EQ(given["pending_scatters"], 3);
  EXPECT_GT(given["memory"]["terms"]["pending scatters"].get<double>(),
            chosen["memory"]["terms"]["pending scatters"].get<double>());
  // Room for one beside all else.
  const auto bytes = chosen["memory"]["bytes"].get<double>();
  const nlohmann::json tight = nlohmann::json::parse(
      Explained(absl::StrCat(explain, "--memory ", static_cast<int64_t>(bytes), " --json")));
  EXPECT_EQ(tight["pending_scatters_max"], 1);
}

}  // namespace
}  // namespace crossmesh
