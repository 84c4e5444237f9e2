#include "client/cli/explained_pairs.h"

#include "common/base/error_place.h"
#include "common/base/status_macros.h"
#include "common/plan/tensor_table.h"
#include "planner/redistribute/baselines/baselines.h"
#include "planner/redistribute/planning/pair_search.h"

#include <string>
#include <utility>

#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

std::vector<NamedDerivation> BaselinesOf(const PairSearch& search) {
  std::vector<NamedDerivation> named;
  for (const RedistributionBaseline baseline : kRedistributionBaselines) {
    NamedDerivation& entry = named.emplace_back();
    entry.name = std::string(RedistributionBaselineName(baseline));
    absl::StatusOr<Derivation> derivation =
        PlanBaseline(baseline, search.request, search.options.cost, search.options.staging);
    if (derivation.ok()) {
      entry.derivation = *std::move(derivation);
    } else {
      entry.refusal = std::string(derivation.status().message());
    }
  }
  return named;
}

absl::StatusOr<ExplainedPair> Explain(const PairSearches& searches, int32_t group,
                                      const StepLimits& limits) {
  ASSIGN_OR_RETURN(PairSearch search, searches.Of(group));
  search.options.live_bytes_max = limits.live_bytes_max;
  search.options.staging = limits.staging;
  ASSIGN_OR_RETURN(Derivation derivation, search.Find());
  return ExplainedPair{.derivation = std::move(derivation),
                       .cap = limits.live_bytes_max,
                       .baselines = BaselinesOf(search)};
}

}  // namespace

std::string ExplainedPair::Text() const { return RedistributionText(derivation, cap, baselines); }

nlohmann::json ExplainedPair::Document() const {
  nlohmann::json document = RedistributionDocument(derivation, cap, baselines);
  document["tensors"] = count;
  document["of"] = tensors;
  return document;
}

absl::StatusOr<std::vector<ExplainedPair>> ExplainPairs(const ReshardRequest& request,
                                                        const StepLimits& limits) {
  const TensorTable& tensors = *request.tensors;
  ASSIGN_OR_RETURN(const PairSearches searches, PairSearches::Create(request));
  std::vector<ExplainedPair> pairs;
  for (int32_t group = 0; group < std::ssize(tensors.groups()); ++group) {
    if (tensors.tensors_in_group(group) == 0) continue;
    const std::string name = tensors.NameOf(group);
    ASSIGN_OR_RETURN(ExplainedPair pair, At(name, Explain(searches, group, limits)));
    pair.tensors = name;
    pair.count = tensors.tensors_in_group(group);
    pairs.push_back(std::move(pair));
  }
  return pairs;
}

}  // namespace crossmesh
