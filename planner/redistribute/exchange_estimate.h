#pragma once

#include "planner/redistribute/search_space.h"

#include <cstdint>

namespace crossmesh {

// What is still to be exchanged, at least, while a tensor lies as in a packed type.
struct ExchangeEstimate {
  int64_t elements = 0;       // that a device receives on the way to the destination, at least
  int32_t communicating = 0;  // steps that communicate, at least
};

// How far a packed type is from the destination, for a search in haste: 0 only there. In bits: of
// what dimensions are cut too little, and a share of what cuts elsewhere than wanted.
double Disorder(const SearchSpace& space, const PackedType& type);

// Let m be the least local array on the way, and O the destination's. Arrays grow only in gathers,
// and each costs what the array grows by: together at least O - m. Everything else is exchanged at
// sizes of at least m. Atoms that cut elsewhere than wanted, N devices together, have to be moved:
//  - by all-to-alls alone, for at least m (1 - 1/N). When the place of one is taken, what takes it
//    has to go in an earlier step, and since a step is cheaper by atom the more it moves, the least
//    is one small step and one with all the rest;
//  - or with a permute, for m, and m (1 - 1/D) for what no permute changes: that dimensions are cut
//    into other numbers of parts, D together, than replicated atoms can make up for.
// Where both come to more than m, the sum is least for the least m that there is, with all atoms
// cut. Only for types without sums to be made. Cost: the atoms squared.
ExchangeEstimate EstimateExchange(const SearchSpace& space, const PackedType& type);

}  // namespace crossmesh
