// What a worker of the release before is not asked for, since it would leave out what it does not
// know.

#include "common/base/version.h"
#include "common/testing/status_matchers.h"
#include "controller/dispatch/testing/running_operation_fixture.h"
#include "controller/dispatch/testing/running_pipeline_fixture.h"
#include "controller/dispatch/testing/sample_layers.h"

#include <memory>
#include <string>
#include <utility>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

auto NamesWorkerAndVersions(const std::string& worker) {
  return AllOf(HasSubstr("worker " + worker), HasSubstr("found version 7.8.9"),
               HasSubstr(absl::StrCat("of version ", Version())));
}

class OlderWorkerOfOperationTest : public RunningOperationTest {
 protected:
  OlderWorkerOfOperationTest() {
    protocol_ = kSessionProtocols.oldest;
    Join("b");
  }
};

TEST_F(OlderWorkerOfOperationTest, ARedistributionByStepsIsRefused) {
  OperationRequest request = Request("op-1");
  const auto tensors = std::make_shared<const TensorTable>(
      *TensorTable::Create({.sources = {{*ParseMesh("x=2 on a.0,b.0"), *ParseLayout("[-]")}},
                            .destinations = {{*ParseMesh("x=2 on a.0,b.0"), *ParseLayout("[x]")}},
                            .groups = {{.shape = *Shape::Create({{8}}), .type = DataType::kF32}},
                            .group_of_tensor = {0}}));
  request.plan = [this, tensors](auto done) {
    done(PlannedReshard::Create({.tensors = tensors,
                                 .strategy = Strategy::kRedistribute,
                                 .redistribution = {.source_partial = {"x"}}},
                                {}, clock_));
  };
  Start(std::move(request));
  EXPECT_EQ(Latest("op-1").state(), v1::OPERATION_STATE_FAILED);
  EXPECT_THAT(ErrorOf(Latest("op-1")),
              StatusIs(absl::StatusCode::kFailedPrecondition, NamesWorkerAndVersions("w-b")));
  EXPECT_THAT(gateway_.calls, IsEmpty());
}

TEST_F(OlderWorkerOfOperationTest, AReshardIsCarriedOut) {
  Start(Request("op-1"));
  FinishAll("op-1");
}

class OlderWorkerOfPipelineTest : public RunningPipelineTest {
 protected:
  OlderWorkerOfPipelineTest() {
    protocol_ = kSessionProtocols.oldest;
    Join("d");
  }
};

TEST_F(OlderWorkerOfPipelineTest, ALayerProgramIsRefused) {
  PipelineRequest request = Request(1);
  request.plan = [](CancelCheck) -> PipelineRequest::Planned {
    return MakeRunnable(PlanSampleLayers());
  };
  Start(std::move(request));
  EXPECT_EQ(Latest().state(), v1::PIPELINE_RUN_STATE_FAILED);
  EXPECT_THAT(Latest().error(), NamesWorkerAndVersions("w-d"));
  EXPECT_THAT(gateway_.calls, IsEmpty());
}

TEST_F(OlderWorkerOfPipelineTest, ARehearsalBesideOthersIsRefused) {
  PipelineRequest request = Request(1);
  request.shown.set_rehearsal(true);
  Start(std::move(request));
  EXPECT_EQ(Latest().state(), v1::PIPELINE_RUN_STATE_FAILED);
  EXPECT_THAT(Latest().error(),
              AllOf(HasSubstr("rehearsal: expected workers of one release, found worker "),
                    HasSubstr("w-d of version 7.8.9"), HasSubstr("upgrade the older one")));
  EXPECT_THAT(gateway_.calls, IsEmpty());
}

TEST_F(OlderWorkerOfPipelineTest, APipelineRuns) {
  StartIterations(1);
  AcceptAll();
  EXPECT_EQ(Latest().state(), v1::PIPELINE_RUN_STATE_RUNNING);
}

}  // namespace
}  // namespace crossmesh
