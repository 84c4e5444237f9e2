#pragma once

#include "client/cli/redistribution_report.h"
#include "planner/redistribute/derivation.h"
#include "planner/redistribute/redistribution_search.h"
#include "planner/reshard/plan_reshard.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/statusor.h>
#include <nlohmann/json_fwd.hpp>

namespace crossmesh {

// How the tensors of one shape and one pair of layouts go, beside what other methods would do.
struct ExplainedPair {
  std::string tensors;  // for people
  int64_t count = 0;    // of them
  Derivation derivation;
  std::optional<int64_t> cap;
  std::vector<NamedDerivation> baselines;

  std::string Text() const;
  nlohmann::json Document() const;
};

// Limits of each step by itself, of arrays that live from step to step.
struct StepLimits {
  std::optional<int64_t> live_bytes_max;
  StepStaging staging;
};

// Of all distinct pairs of a request, in the order of its first tensors. InvalidArgument and
// ResourceExhausted, naming the tensor, as PairSearches and PairSearch.
absl::StatusOr<std::vector<ExplainedPair>> ExplainPairs(const ReshardRequest& request,
                                                        const StepLimits& limits);

}  // namespace crossmesh
