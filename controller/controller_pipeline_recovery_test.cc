// What a controller does with the runs of pipelines that the one before it has left.

#include "common/testing/status_matchers.h"
#include "controller/testing/controller_pipeline_fixture.h"

#include <limits>
#include <string>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using LeftStub = v1::PipelineService::Stub;

class PipelineRecoveryTest : public ControllerPipelineTest {
 protected:
  // Iterations 0 and 1 are complete, and 2 runs; nothing more is complete before Release.
  std::string StartAndHold(const v1::StartPipelineRequest& request) {
    StartWorkers();
    Programs(2).HoldFrom(2);
    StartReader reader = Start(request);
    const auto run = reader.Next();
    EXPECT_OK(run);
    Programs(2).WaitForIterations(3);
    return run.ok() ? run->id() : "";
  }
  void Restart() {
    EndController();
    StartPipelineController();
  }
  void Release() {
    Programs(2).HoldFrom(std::numeric_limits<int64_t>::max());
    for (const auto& worker : workers_) worker->Rejoin();
  }
};

TEST_F(PipelineRecoveryTest, ARunGoesOnWithTheNextIteration) {
  const std::string id = StartAndHold(Request("r", 6));
  Restart();
  Release();
  // The same request again follows the same run.
  ASSERT_OK_AND_ASSIGN(const v1::PipelineRun run, Start(Request("r", 6)).Last());
  EXPECT_EQ(run.id(), id);
  EXPECT_EQ(run.state(), v1::PIPELINE_RUN_STATE_DONE) << run.error();
  EXPECT_EQ(run.failed_iterations(), 1);
  EXPECT_EQ(run.done(0).index(), 1);
  EXPECT_NEAR(run.done(0).seconds(), 0.008, 1e-6);
  EXPECT_EQ(run.done(1).error(), "the controller that ran it has ended");
  for (size_t worker = 0; worker < 3; ++worker) {
    EXPECT_THAT(Programs(worker).begun(), ElementsAre(0, 1, 2, 3, 4, 5));
    const v1::RunProgramRequest::Start start = Programs(worker).last_start();
    EXPECT_EQ(start.run_id(), id);
    EXPECT_EQ(start.complete_iteration(), 1);
    EXPECT_EQ(start.epoch(), controller_->epoch());
    EXPECT_EQ(start.lost_ranks_size(), 0);
  }
  // Its end is remembered, and what was on record for it is gone.
  Restart();
  ASSERT_OK_AND_ASSIGN(const v1::PipelineRun remembered, Watch(id).Last());
  EXPECT_EQ(remembered.SerializeAsString(), run.SerializeAsString());
  EXPECT_THAT(store_->List("progress-run/", "", 10), IsOkAndHolds(ElementsAre()));
}

TEST_F(PipelineRecoveryTest, WhatItNamesMayBeGone) {
  ASSERT_OK(CreatePipeline(Spec()));
  v1::StartPipelineRequest request = Request("r", 4);
  request.set_pipeline("two");
  const std::string id = StartAndHold(request);
  Restart();
  v1::DeletePipelineRequest pipeline;
  pipeline.set_name("two");
  ASSERT_OK(Call(*pipelines_, &LeftStub::DeletePipeline, pipeline));
  v1::DeleteMeshRequest mesh;
  mesh.set_name("first");
  ASSERT_OK(Call(*meshes_, &v1::MeshService::Stub::DeleteMesh, mesh));
  Restart();
  Release();
  ASSERT_OK_AND_ASSIGN(const v1::PipelineRun run, Watch(id).Last());
  EXPECT_EQ(run.state(), v1::PIPELINE_RUN_STATE_DONE) << run.error();
  EXPECT_EQ(run.pipeline(), "two");
  EXPECT_THAT(Programs(0).begun(), ElementsAre(0, 1, 2, 3));
}

TEST_F(PipelineRecoveryTest, ItCanBeStoppedAtTheNextController) {
  const std::string id = StartAndHold(Request("r", 6));
  Restart();
  auto reader = Watch(id);
  ASSERT_OK(reader.NextIn(v1::PIPELINE_RUN_STATE_WAITING));
  ASSERT_OK(Stop(id, /*now=*/false));
  ASSERT_OK_AND_ASSIGN(const v1::PipelineRun run, reader.Last());
  EXPECT_EQ(run.state(), v1::PIPELINE_RUN_STATE_STOPPED);
}

TEST_F(PipelineRecoveryTest, AControllerThatStopsLeavesItsRuns) {
  const std::string id = StartAndHold(Request("r", 4));
  auto reader = Watch(id);
  ASSERT_OK(reader.Next());
  controller_->Shutdown(absl::Seconds(10));
  EXPECT_THAT(reader.Last(), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("is stopping")));
  for (size_t worker = 0; worker < 3; ++worker) EXPECT_EQ(Programs(worker).counts().stops, 1);
  Restart();
  Release();
  ASSERT_OK_AND_ASSIGN(const v1::PipelineRun run, Watch(id).Last());
  EXPECT_EQ(run.state(), v1::PIPELINE_RUN_STATE_DONE) << run.error();
}

TEST_F(PipelineRecoveryTest, ProgressThatCannotBeReadIsRefused) {
  const std::string id = StartAndHold(Request("r", 6));
  const uint64_t epoch = controller_->epoch();
  EndController();
  ASSERT_OK(store_->Commit({.epoch = epoch, .writes = {{absl::StrCat("progress-run/", id), "?"}}})
                .status());
  EXPECT_THAT(Controller::Create({.listen = {address_}, .metrics_listen = "", .store = store_}),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr(id)));
}

}  // namespace
}  // namespace crossmesh
