#pragma once

#include "planner/redistribute/collective_cost.h"
#include "planner/redistribute/moves.h"
#include "planner/redistribute/search_space.h"

#include <cstdint>
#include <span>

namespace crossmesh {

// Prices moves between packed types, as StepPrices::Price does steps. Refers to both. Immutable.
class MovePrices {
 public:
  MovePrices(const SearchSpace& space, const StepPrices& prices);

  // Seconds of a move that is no relay, with so many local bytes before, in messages or not. Cost:
  // the atoms squared where there are rings, else the atoms.
  double Seconds(const PackedType& before, const Move& move, int64_t local_bytes,
                 bool only_messages) const;

 private:
  bool LieInOrder(const PackedType& pieces, std::span<const int32_t> atoms) const;

  const SearchSpace& space_;
  const StepPrices& prices_;
  bool is_even_ = true;  // all dimensions divide
};

}  // namespace crossmesh
