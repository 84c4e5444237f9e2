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

// One link for all, and no relay.
RedistributionOptions Options() {
  return {.cost = {.seconds_per_step = 10e-6,
                   .links = {{.part = {.axis = 0, .before = 1, .size = 4},
                              .seconds_per_message = 1e-6,
                              .bytes_per_second = 1e9}}},
          .relay = false};
}

std::vector<NamedDerivation> Beside(const RedistributionRequest& request) {
  return {{.name = "replicate_then_slice",
           .derivation =
               *PlanBaseline(RedistributionBaseline::kReplicateThenSlice, request, Options().cost),
           .refusal = ""},
          {.name = "other", .derivation = std::nullopt, .refusal = "no answer"}};
}

TEST(RedistributionReportTest, ADerivationIsPrintedStepByStepBesideOthers) {
  const RedistributionRequest request = RowsToColumns();
  ASSERT_OK_AND_ASSIGN(const RedistributionResult result, SearchRedistribution(request, Options()));
  EXPECT_EQ(RedistributionText(result.derivation, 3'000'000, Beside(request)),
            R"(STEP        AXES  GROUP  RECEIVED    LIVE      TIME  TYPE
----------  ----  -----  --------  ------  --------  ------
source                                               [x, -]
all_to_all  x         4  750.0 kB  2.0 MB  763.0 us  [-, x]

received      750.0 kB by the busiest device, 1.00 x the least of any plan (750.0 kB)
live          2.0 MB on the fullest device, of 3.0 MB
predicted     763.0 us
found as      the best of all sequences that the search considers

BESIDE                STEPS  RECEIVED  RATIO    LIVE  RATIO     TIME  RATIO
--------------------  -----  --------  -----  ------  -----  -------  -----
replicate_then_slice      2    3.0 MB   4.00  5.0 MB   2.50  3.01 ms   3.95
other has no answer: no answer
)");
}

TEST(RedistributionReportTest, TheDocumentHasTheSameFigures) {
  const RedistributionRequest request = RowsToColumns();
  ASSERT_OK_AND_ASSIGN(const RedistributionResult result, SearchRedistribution(request, Options()));
  const nlohmann::json document =
      RedistributionDocument(result.derivation, 3'000'000, Beside(request));
  EXPECT_EQ(document["bytes"], 750'000);
  EXPECT_EQ(document["bound_bytes"], 750'000);
  EXPECT_EQ(document["cap_bytes"], 3'000'000);
  ASSERT_EQ(document["steps"].size(), 1);
  EXPECT_EQ(document["steps"][0]["kind"], "all_to_all");
  EXPECT_EQ(document["baselines"]["replicate_then_slice"]["bytes"], 3'000'000);
  EXPECT_EQ(document["source"], "[x, -]");
  EXPECT_EQ(document["destination"], "[-, x]");
  EXPECT_EQ(document["baselines"]["replicate_then_slice"]["steps"][1]["kind"], "slice");
  EXPECT_EQ(document["baselines"]["other"]["refusal"], "no answer");
}

}  // namespace
}  // namespace crossmesh
