#pragma once

#include "planner/redistribute/local_type.h"
#include "planner/redistribute/step.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace crossmesh {

// How a derivation was found, or why it is none that a search chose.
enum class DerivationOrigin : uint8_t {
  kSearch,    // none is better by the objective, of the steps that the search looks at
  kBudget,    // the best that was seen before the budget of nodes was spent
  kUneven,    // a dimension that does not divide changes: a relay, after reductions
  kBaseline,  // a method of the literature
};
absl::string_view DerivationOriginName(DerivationOrigin origin);

// A sequence of typed steps that turns the source of a request into its destination, and what it
// costs. Immutable; shares its space.
class Derivation {
 public:
  Derivation(std::shared_ptr<const TypeSpace> space, std::vector<RedistributionStep> steps,
             DerivationOrigin origin);

  Derivation WithOrigin(DerivationOrigin origin) const {
    Derivation other = *this;
    other.origin_ = origin;
    return other;
  }

  // With what an executor declares beside in and out, of steps that have been made without.
  Derivation WithStaging(StepStaging staging) const;

  const TypeSpace& space() const { return *space_; }
  const std::vector<RedistributionStep>& steps() const { return steps_; }
  DerivationOrigin origin() const { return origin_; }

  // Received by the busiest device of each step, added up.
  int64_t bytes() const;
  // No plan has the neediest device receive less. Where sums are to be made: what it is to have.
  int64_t bound_bytes() const { return bound_bytes_; }
  // The largest in, out and staging of a step; the source where there is no step.
  int64_t peak_live_bytes() const;
  // The largest local array.
  int64_t peak_local_bytes() const;
  double seconds() const;
  int communicating_steps() const;

  // The typed form: one line for each step, with its atoms, types before and after, devices of a
  // group, bytes that the busiest device receives, live bytes and seconds; then bytes over bound,
  // peak over the limit, where there is one, and seconds.
  std::string Text(std::optional<int64_t> live_bytes_max = std::nullopt) const;

 private:
  std::shared_ptr<const TypeSpace> space_;
  std::vector<RedistributionStep> steps_;
  DerivationOrigin origin_;
  int64_t bound_bytes_ = 0;
};

}  // namespace crossmesh
