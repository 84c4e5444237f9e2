#include "planner/pipeline/planning/edge_plans.h"

#include "common/testing/status_matchers.h"
#include "planner/pipeline/planning/pipeline_codec.h"
#include "planner/pipeline/planning/testing/planned_pipelines.h"

#include <cstdint>
#include <iterator>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::SizeIs;

TEST(EdgePlansTest, TheHopsOfAllEdgesTogetherAreLimited) {
  ASSERT_OK_AND_ASSIGN(const PipelineDescription pipeline, FromProto(Chain(3, 4), {}));
  ASSERT_OK_AND_ASSIGN(const std::vector<EdgePlan> plans, PlanEdges(pipeline));
  ASSERT_THAT(plans, SizeIs(4));
  int64_t hops = 0;
  for (const EdgePlan& edge : plans) hops += std::ssize(edge.plan->hops());
  EXPECT_OK(PlanEdges(pipeline, NeverCancelled, hops).status());
  EXPECT_THAT(PlanEdges(pipeline, NeverCancelled, hops - 1).status(),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("edge from stage 1 to 2, backward"),
                             HasSubstr(absl::StrCat("expected at most ", hops - 1,
                                                    " together, found ", hops)))));
}

}  // namespace
}  // namespace crossmesh
