#pragma once

#include "planner/redistribute/displacement.h"

#include <cstdint>

namespace crossmesh {

// What is still to be exchanged, at least, while a tensor lies as in a packed type.
struct ExchangeEstimate {
  int64_t elements = 0;       // that a device receives on the way to the destination, at least
  int32_t communicating = 0;  // steps that communicate, at least, of a path of fewest elements
};

// Elements of local arrays.
struct LocalSizes {
  int64_t now = 0;
  int64_t wanted = 0;  // at the destination
};

// Let m be the least local array on the way, and O the destination's. Arrays grow only in gathers,
// and each costs what the array grows by: together at least O - m, and m more where something is
// sliced after a gather. Everything else is exchanged at sizes of at least m, by groups of N
// devices for m (1 - 1/N), or m in a permute. Atoms that cut elsewhere than wanted have to be
// moved:
//  - with a permute, for m, and m (1 - 1/D) for what no permute changes: that dimensions are cut
//    into other numbers of parts, D together, than replicated atoms can make up for;
//  - by one all-to-all, where no place is taken;
//  - by two, what takes a place in the first one, and what is wanted there in the second one;
//  - by three or more, the first two of which move an atom at least;
//  - or by slices after a gather, also of what is in the way and wanted nowhere, for m and an
//    all-to-all of the rest.
// Where all of these come to more than m, the sum is least for the least m that there is, with all
// atoms cut. Only for types without sums to be made.
ExchangeEstimate EstimateExchange(const Displacement& displacement, const LocalSizes& sizes);

}  // namespace crossmesh
