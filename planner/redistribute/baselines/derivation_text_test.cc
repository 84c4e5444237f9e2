#include "common/base/check.h"
#include "common/testing/scripts.h"
#include "planner/redistribute/baselines/baselines.h"
#include "planner/redistribute/redistribution_search.h"
#include "planner/redistribute/testing/redistribution_vectors.h"

#include <algorithm>
#include <string>
#include <vector>

#include <absl/strings/str_split.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

// A script's event is a vector and what to plan it by: "xla-03 bytes", "hi-01 seconds",
// "cop-01 one_axis"; "+relay" allows relays.
std::string PlanText(absl::string_view event) {
  const std::vector<std::string> words = absl::StrSplit(event, ' ', absl::SkipEmpty());
  const std::vector<RedistributionVector>& vectors = RedistributionVectors();
  const auto vector = std::ranges::find(vectors, words[0], &RedistributionVector::id);
  CHECK(vector != vectors.end()) << event;
  for (const RedistributionBaseline baseline : kRedistributionBaselines) {
    if (words[1] != RedistributionBaselineName(baseline)) continue;
    const absl::StatusOr<Derivation> derivation =
        PlanBaseline(baseline, vector->request, vector->cost);
    return derivation.ok() ? derivation->Text() : std::string(derivation.status().message());
  }
  const RedistributionOptions options{.objective = words[1] == "bytes"
                                                       ? RedistributionObjective::kBytes
                                                       : RedistributionObjective::kSeconds,
                                      .cost = vector->cost,
                                      .relay = words.size() > 2 && words[2] == "+relay"};
  const absl::StatusOr<RedistributionResult> result =
      SearchRedistribution(vector->request, options);
  CHECK_OK(result);
  return result->derivation.Text();
}

TEST(DerivationTextTest, ScriptsPlayAsWritten) {
  EXPECT_GT(ExpectScriptsPlayAsWritten(
                "planner/redistribute/baselines/testdata",
                [](const std::string& script) { return PlayScript(script, PlanText); }),
            0);
}

}  // namespace
}  // namespace crossmesh
