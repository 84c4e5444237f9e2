#include "client/cli/redistribution_report.h"

#include "common/testing/status_matchers.h"
#include "planner/redistribute/baselines/baselines.h"
#include "planner/redistribute/redistribution_search.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

// Rows to columns of a matrix over four devices.
RedistributionRequest RowsToColumns() {
  RedistributionRequest request{
      .axes = {{"x", 4}}, .shape = *ParseShape("[1000, 1000]"), .item_bytes = 4};
  request.source = *EndOf(*ParseLayout("[x, -]"), request.axes);
  request.destination = *EndOf(*ParseLayout("[-, x]"), request.axes);
  return request;
}

std::vector<NamedDerivation> Beside(const RedistributionRequest& request) {
  return {{.name = "replicate_then_slice",
           .derivation = *PlanBaseline(RedistributionBaseline::kReplicateThenSlice, request),
           .refusal = ""},
          {.name = "other", .derivation = std::nullopt, .refusal = "no answer"}};
}

TEST(RedistributionReportTest, ADerivationIsPrintedStepByStepBesideOthers) {
  const RedistributionRequest request = RowsToColumns();
  ASSERT_OK_AND_ASSIGN(const RedistributionResult result, SearchRedistribution(request));
  EXPECT_EQ(RedistributionText(result.derivation, 3'000'000, Beside(request)), "");
}

TEST(RedistributionReportTest, TheDocumentHasTheSameFigures) {
  const RedistributionRequest request = RowsToColumns();
  ASSERT_OK_AND_ASSIGN(const RedistributionResult result, SearchRedistribution(request));
  const nlohmann::json document =
      RedistributionDocument(result.derivation, 3'000'000, Beside(request));
  EXPECT_EQ(document["bytes"], 750'000);
  EXPECT_EQ(document["bound_bytes"], 750'000);
  EXPECT_EQ(document["cap_bytes"], 3'000'000);
  ASSERT_EQ(document["steps"].size(), 1);
  EXPECT_EQ(document["steps"][0]["kind"], "all_to_all");
  EXPECT_EQ(document["baselines"]["replicate_then_slice"]["bytes"], 3'000'000);
  EXPECT_EQ(document["baselines"]["other"]["refusal"], "no answer");
}

}  // namespace
}  // namespace crossmesh
