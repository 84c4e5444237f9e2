// Daemons and command lines of the release before beside those of this one. Which daemons are old
// says the environment (tests/live/live_cluster.h).

#include "client/cli/testing/program_run.h"
#include "client/client.h"
#include "client/outcome.h"
#include "common/base/version.h"
#include "common/testing/status_matchers.h"
#include "planner/layers/layer_program_codec.h"
#include "tests/live/chain_pipeline.h"
#include "tests/live/live_cluster.h"
#include "tests/live/reshard_case.h"
#include "tests/live/running_reshard.h"
#include "tests/reliability/load_cases.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Matcher;

// Of the release before.
constexpr const char* kStrategies[] = {
    "relay",           "send_recv",      "local_all_gather", "global_all_gather",
    "broadcast_naive", "broadcast_size", "broadcast_greedy", "broadcast_search"};

// A sum over two devices, that a third op waits for.
v1::StartPipelineRequest SumOfTwo() {
  LayerProgram program;
  program.ranks.push_back(
      {.mesh = std::make_shared<const Mesh>(*ParseMesh("x=2 on node-0.0,node-1.0"))});
  program.ops = {{.name = "layer0.forward", .seconds = 0.01}, {.name = "layer0.update"}};
  const Layout whole = *ParseLayout("[-]");
  program.transfers.push_back(
      {.name = "sum",
       .tensors = {{.tensor = {.name = "sum", .shape = Shape::Create({{4096}}).value()},
                    .source = whole,
                    .destination = whole}},
       .partial = {"x"},
       .messages = {{.producer = 0, .consumer = 1}}});
  v1::StartPipelineRequest start;
  *start.mutable_inline_layers() = ToProto(program);
  start.set_request_id(NewRequestId());
  start.set_rehearsal(true);
  start.set_iterations(2);
  return start;
}

class SkewTest : public testing::Test {
 protected:
  void SetUp() override {
    if (ReleaseBefore().empty()) GTEST_SKIP() << "no release before: tests/reliability/run has it";
    ASSERT_OK_AND_ASSIGN(cluster_, LiveCluster::Start({.workers = {"node-0", "node-1", "node-2"}}));
  }

  bool HasOldController() const { return cluster_->IsOld(LiveCluster::kController); }
  // Of those of these names, the first.
  std::string OldOf(const std::vector<std::string>& workers) const {
    const auto old =
        std::ranges::find_if(workers, [this](const auto& name) { return cluster_->IsOld(name); });
    return old == workers.end() ? "" : *old;
  }
  // With the worker's name and both versions; of an old controller, which tells clients of no
  // version, with this one's.
  Matcher<const std::string&> IsRefusedFor(const std::string& worker) {
    if (HasOldController()) {
      return AllOf(HasSubstr("controller unix:"), HasSubstr(std::string(Version())),
                   HasSubstr("release"));
    }
    const absl::StatusOr<v1::Worker> found = cluster_->GetWorker(worker);
    EXPECT_OK(found.status());
    return AllOf(HasSubstr(worker), HasSubstr(std::string(Version())), HasSubstr(found->version()));
  }
  // As a shell calls it.
  static std::string OldCrossmesh() { return absl::StrCat("'", ReleaseBefore(), "/crossmesh'"); }
  std::string AtController(const std::string& command) const {
    return absl::StrCat(command, " --controller ", cluster_->controller_address());
  }

  std::unique_ptr<LiveCluster> cluster_;
};

TEST_F(SkewTest, EveryWorkerJoinsAndIsListedWithItsVersion) {
  ASSERT_OK_AND_ASSIGN(const std::vector<v1::Worker> workers, cluster_->client().ListWorkers());
  for (const v1::Worker& worker : workers) {
    EXPECT_EQ(worker.version() != Version(), cluster_->IsOld(worker.name())) << worker.name();
  }
}

TEST_F(SkewTest, EveryStrategyMovesTheBytesByShadowAndInPlace) {
  for (const v1::BindingMode binding : {v1::BINDING_MODE_SHADOW, v1::BINDING_MODE_IN_PLACE}) {
    ReshardOptions options = BetweenStoragesOf(absl::StrCat("mode-", binding), TensorsOf(4 << 20));
    options.binding = binding;
    ASSERT_OK_AND_ASSIGN(const auto reshard, ReshardCase::Create(options, *cluster_));
    uint8_t version = 1;
    for (const char* strategy : kStrategies) {
      ASSERT_OK(reshard->FillSource(++version));
      reshard->spec().set_strategy(strategy);
      ASSERT_OK_AND_ASSIGN(const v1::Operation operation,
                           Execute(cluster_->controller_address(), reshard->spec()));
      EXPECT_OK(OutcomeOf(operation)) << strategy;
      EXPECT_OK(reshard->CheckAll(version)) << strategy;
    }
  }
}

// What is refused leaves no trace, and what is asked for next runs.
TEST_F(SkewTest, ARedistributionMakesItsSumsOrIsRefused) {
  ASSERT_OK_AND_ASSIGN(const auto sums, ReshardCase::Create(SumsOf("sums", 768), *cluster_));
  const absl::StatusOr<v1::Operation> operation =
      Execute(cluster_->controller_address(), sums->spec());
  const absl::Status outcome = operation.ok() ? OutcomeOf(*operation) : operation.status();
  const std::string old = OldOf(cluster_->workers());
  if (old.empty() && !HasOldController()) {
    EXPECT_OK(outcome);
    EXPECT_OK(sums->CheckAll(1));
  } else {
    EXPECT_THAT(std::string(outcome.message()), IsRefusedFor(old));
    EXPECT_OK(sums->CheckAll(0));
  }
  ASSERT_OK_AND_ASSIGN(
      const auto reshard,
      ReshardCase::Create(BetweenStoragesOf("next", TensorsOf(1 << 20)), *cluster_));
  ASSERT_OK_AND_ASSIGN(const v1::Operation next,
                       Execute(cluster_->controller_address(), reshard->spec()));
  EXPECT_OK(OutcomeOf(next));
  EXPECT_OK(reshard->CheckAll(1));
}

TEST_F(SkewTest, ALayerProgramRunsOrIsRefused) {
  const absl::StatusOr<v1::PipelineRun> run =
      cluster_->client().StartPipeline(SumOfTwo(), [](const v1::PipelineRun&) {});
  const absl::Status outcome = run.ok() ? OutcomeOf(*run) : run.status();
  const std::string old = OldOf({"node-0", "node-1"});
  if (old.empty() && !HasOldController()) {
    EXPECT_OK(outcome);
  } else {
    EXPECT_THAT(std::string(outcome.message()), IsRefusedFor(old));
  }
}

// Of a worker that is at work: an idle one leaves at once.
TEST_F(SkewTest, ARehearsalRunsWithWorkersOfOneReleaseAlone) {
  v1::StartPipelineRequest start;
  *start.mutable_inline_pipeline() = ChainPipeline(cluster_->workers(), 0.001);
  start.set_request_id(NewRequestId());
  start.set_rehearsal(true);
  start.set_iterations(2);
  ASSERT_OK_AND_ASSIGN(const v1::PipelineRun run,
                       cluster_->client().StartPipeline(start, [](const v1::PipelineRun&) {}));
  const auto is_old = [this](const auto& name) { return cluster_->IsOld(name); };
  const auto old = std::ranges::count_if(cluster_->workers(), is_old);
  if (old == 0 || old == std::ssize(cluster_->workers())) {
    EXPECT_OK(OutcomeOf(run));
  } else if (!HasOldController()) {
    EXPECT_THAT(run.error(), HasSubstr("rehearsal: expected workers of one release"));
  } else {
    EXPECT_NE(run.state(), v1::PIPELINE_RUN_STATE_DONE);  // each found the other's bytes
  }
}

TEST_F(SkewTest, ADrainIsTakenBackOrThatIsRefused) {
  ASSERT_OK_AND_ASSIGN(
      const auto reshard,
      ReshardCase::Create(BetweenStoragesOf("slow", TensorsOf(64 << 20)), *cluster_));
  reshard->spec().set_nic_share(0.002);
  RunningReshard running(cluster_->controller_address(), reshard->spec());
  ASSERT_OK_AND_ASSIGN(const v1::Operation operation, running.WaitUntilRunning());
  ASSERT_OK(cluster_->client().DrainWorker("node-1"));
  const absl::Status taken_back = cluster_->client().UndrainWorker("node-1");
  if (!cluster_->IsOld("node-1") && !HasOldController()) {
    EXPECT_OK(taken_back);
    EXPECT_OK(cluster_->WaitForAllWorkers());
  } else {
    EXPECT_THAT(std::string(taken_back.message()), IsRefusedFor("node-1"));
  }
  EXPECT_OK(cluster_->client().CancelOperation(operation.id(), "the test has seen enough"));
}

// Each registers, lists, plans and moves.
TEST_F(SkewTest, CommandsOfBothReleasesWork) {
  ASSERT_OK_AND_ASSIGN(
      const auto reshard,
      ReshardCase::Create(BetweenStoragesOf("moved", TensorsOf(1 << 20)), *cluster_));
  std::string text;
  ASSERT_TRUE(google::protobuf::util::MessageToJsonString(reshard->spec(), &text).ok());
  const std::string request = cluster_->PathOf("request.json");
  std::ofstream(request) << text;
  uint8_t version = 1;
  for (const std::string& program : {std::string("\"$CROSSMESH\""), OldCrossmesh()}) {
    ASSERT_OK(reshard->FillSource(++version));
    for (const std::string& command :
         {std::string("mesh create one 'x=1 on node-0.0'"), std::string("mesh show one"),
          std::string("mesh delete one"), std::string("manifest create gpt2 examples/gpt2.json"),
          std::string("manifest list"), std::string("manifest delete gpt2"),
          std::string("worker list --json"), std::string("network show"),
          "plan --request " + request, "reshard --request " + request,
          std::string("operation list"), std::string("pipeline show"),
          std::string("worker drain node-0")}) {
      const ProgramResult result = RunShell(absl::StrCat(program, " ", AtController(command)));
      EXPECT_EQ(result.exit_status, 0) << program << " " << command << "\n"
                                       << result.out << result.error;
    }
    EXPECT_OK(reshard->CheckAll(version)) << program;
    cluster_->Kill("node-0");
    ASSERT_OK(cluster_->StartWorker("node-0"));
    ASSERT_OK(cluster_->WaitForAllWorkers());
    ASSERT_OK(reshard->Prepare("node-0"));
  }
}

TEST_F(SkewTest, WhatAnOlderControllerLacksIsNamed) {
  for (const char* command : {"status", "worker evict node-2"}) {
    const ProgramResult result = Crossmesh(AtController(command));
    if (HasOldController()) {
      EXPECT_NE(result.exit_status, 0) << command;
      EXPECT_THAT(result.error, IsRefusedFor("")) << command;
    } else {
      EXPECT_EQ(result.exit_status, 0) << command << result.error;
    }
  }
}

}  // namespace
}  // namespace crossmesh
