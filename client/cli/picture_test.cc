// What pictures are drawn from, and what becomes of it where it cannot be drawn.

#include "client/cli/picture.h"

#include "client/cli/pipeline_picture.h"
#include "client/cli/testing/program_run.h"
#include "client/planning/plan_picture.h"
#include "common/base/check.h"
#include "common/plan/testing/random_tensors.h"
#include "common/plan/testing/random_topology.h"
#include "common/plan/testing/tables.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_folder.h"
#include "planner/pipeline/planning/testing/example_pipeline.h"
#include "planner/pipeline/planning/testing/planned_pipelines.h"
#include "planner/reshard/plan_reshard.h"

#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

json PictureOf(const ReshardRequest& request) {
  const absl::StatusOr<Plan> plan = PlanReshard(request);
  CHECK_OK(plan);
  const absl::StatusOr<SimulatedTimeline> run =
      Simulate(*plan, request.topology, {.keep_transfers = true});
  CHECK_OK(run);
  return json::parse(PlanPicture(*plan, request.topology, *run));
}

json PictureOf(absl::string_view tensor, const Topology& topology = {}) {
  return PictureOf({.tensors = std::make_shared<const TensorTable>(TableOf({TensorOf(tensor)})),
                    .topology = topology});
}

// The port of a route at its begin or its end, as the host that it should be of and a direction.
void ExpectEnd(const json& picture, const json& port, const json& host, const char* direction) {
  EXPECT_EQ(picture["ports"][port.get<size_t>()]["host"], host);
  EXPECT_EQ(picture["ports"][port.get<size_t>()]["direction"], direction);
}

// Routes begin and end at NICs of their hosts, have times within the run, and all bytes that the
// ports carry.
void ExpectComplete(const json& picture) {
  const double seconds = picture["seconds"];
  double sent = 0, bytes = 0;
  for (const json& port : picture["ports"]) {
    if (port["direction"] == "out") sent += port["bytes"].get<double>();
  }
  for (const json& route : picture["routes"]) {
    bytes += route["bytes"].get<double>();
    ExpectEnd(picture, route["ports"].front(), route["sender"], "out");
    ExpectEnd(picture, route["ports"].back(), route["receiver"], "in");
    double last = 0;
    for (const json& bar : route["bars"]) {
      EXPECT_LE(last, bar[0].get<double>());
      EXPECT_LT(bar[0].get<double>(), bar[1].get<double>());
      last = bar[1];
    }
    EXPECT_LE(last + route["latency_seconds"].get<double>(), seconds * (1 + 1e-9));
  }
  EXPECT_NEAR(bytes, sent, 1e-6 * sent);
  if (picture["routes"].empty()) return;
  const json& end = picture["critical"].back();
  const json& route = picture["routes"][end[0].get<size_t>()];
  EXPECT_NEAR(end[2].get<double>() + route["latency_seconds"].get<double>(), seconds,
              1e-9 * seconds);
}

TEST(PlanPictureTest, AChainHasARouteForEachHop) {
  const json picture = PictureOf("[4194304]: x=1 on a.0 [-] -> y=4 on b.0,c.0,d.0,e.0 [-]");
  EXPECT_EQ(picture["hosts"].size(), 5);
  ASSERT_EQ(picture["routes"].size(), 4);
  std::set<int> hosts = {0};  // the root
  for (const json& route : picture["routes"]) {
    EXPECT_EQ(route["root"], 0);
    EXPECT_EQ(route["bytes"], 4194304 * 4);
    hosts.insert(route["receiver"].get<int>());
  }
  EXPECT_EQ(hosts.size(), 5);
  EXPECT_EQ(picture["critical"].size(), 4);
  EXPECT_EQ(picture["assumed_rates"], true);
  ExpectComplete(picture);
}

TEST(PlanPictureTest, RacksAreNamedAndTheirUplinksPassed) {
  const auto host = [](const char* name) {
    return Host{.name = name, .nics = {{"left", 1 << 30, 1 << 30}, {"right", 1 << 30, 1 << 30}}};
  };
  ASSERT_OK_AND_ASSIGN(
      const Topology topology,
      Topology::Create({host("a"), host("b")},
                       {{"north", {"a"}, 1 << 30, 1 << 30}, {"south", {"b"}, 1 << 30, 1 << 30}}));
  const json picture = PictureOf("[4194304]: x=1 on a.0 [-] -> y=1 on b.0 [-]", topology);
  EXPECT_EQ(picture["hosts"][0], json({{"name", "a"}, {"rack", "north"}}));
  ASSERT_EQ(picture["routes"].size(), 2);
  for (const json& route : picture["routes"]) {
    std::vector<std::string> directions;
    for (const json& port : route["ports"]) {
      directions.push_back(picture["ports"][port.get<size_t>()]["direction"]);
    }
    EXPECT_THAT(directions, ElementsAre("out", "up", "down", "in"));
  }
  ExpectComplete(picture);
}

TEST(PlanPictureTest, WhatNeedsNoNetworkHasNoRoutes) {
  const json picture = PictureOf("[8]: x=2 on a.0,b.0 [-] -> y=2 on b.0,a.0 [-]");
  EXPECT_TRUE(picture["routes"].empty());
  EXPECT_TRUE(picture["critical"].empty());
}

TEST(PlanPictureTest, ShortChunksBecomeRunsAndLongOnesStay) {
  // 64 chunks, each a leaf, and as many as a plan has periods.
  const auto bars = [](int64_t elements) {
    return PictureOf(absl::StrCat("[", elements,
                                  "]: x=1 on a.0 [-] -> y=1 on b.0 [-]"))["routes"][0]["bars"]
        .size();
  };
  EXPECT_EQ(bars(int64_t{1} << 20), 64);
  EXPECT_EQ(bars(int64_t{1} << 27), 1);
}

TEST(PlanPictureTest, AnyPlanIsComplete) {
  for (uint64_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomSource random(seed);
    ReshardRequest request;
    request.tensors = std::make_shared<const TensorTable>(RandomTensorTable(random));
    request.topology = RandomTopology(random, *request.tensors);
    request.strategy = kAllStrategies[seed % std::size(kAllStrategies)];
    ExpectComplete(PictureOf(request));
  }
}

TEST(PipelinePictureTest, HasEveryOpAndWhatPassesBetweenRanks) {
  const auto planned = *PlanOf(ExamplePipeline(), ChoiceOf("1f1b"));
  const OpTable& ops = *planned->ops;
  const json picture = json::parse(PipelinePicture(
      {{.title = "a", .ops = &ops, .run = &planned->run},
       {.title = "b", .ops = &ops, .run = &planned->run, .measured = &planned->run}}));
  EXPECT_EQ(picture["has_unit"], true);
  ASSERT_EQ(picture["runs"].size(), 2);
  const json& run = picture["runs"][0];
  EXPECT_EQ(run["planned"]["ops"].size(), ops.size());
  EXPECT_EQ(run["planned"]["ops"][0], json({"0F0", 0.0, planned->run.ops[0].end}));
  EXPECT_EQ(run["stage_ranks"], json({0, 1, 2, 3}));
  int64_t passing = 0;
  for (TransferIndex transfer = 0; transfer < ops.transfers(); ++transfer) {
    if (ops.Passes(transfer)) passing += ops.schedule().microbatches;
  }
  EXPECT_EQ(run["transfers"].size(), passing);
  EXPECT_FALSE(run.contains("measured"));
  EXPECT_EQ(picture["runs"][1]["measured"], picture["runs"][1]["planned"]);
}

TEST(DrawPictureTest, AFileOfJsonIsTheDescriptionItself) {
  const TemporaryFolder folder;
  const std::string path = folder.PathOf("picture.json");
  EXPECT_OK(CheckPicture(path));
  EXPECT_OK(DrawPicture("{}", path));
  EXPECT_EQ(ReadAll(path), "{}");
}

TEST(DrawPictureTest, WithoutMatplotlibThePackageIsNamed) {
  const TemporaryFolder folder;
  std::ofstream(folder.PathOf("matplotlib.py"))
      << "raise ModuleNotFoundError(\"No module named 'matplotlib'\")\n";
  const ProgramResult result = RunShell(absl::StrCat(
      "PYTHONPATH=", folder.PathOf(""),
      " \"$CROSSMESH\" pipeline draw examples/pipeline.json --svg ", folder.PathOf("a.svg")));
  EXPECT_EQ(result.exit_status, 1);
  EXPECT_THAT(result.error, AllOf(HasSubstr("python3-matplotlib"), HasSubstr("--trace")));
}

}  // namespace
}  // namespace crossmesh
