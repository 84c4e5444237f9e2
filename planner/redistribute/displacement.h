#pragma once

#include "planner/redistribute/search_space.h"

#include <cstdint>
#include <vector>

namespace crossmesh {

// What of a packed type is not as the destination wants it, as products of the sizes of atoms.
struct Displacement {
  int64_t strays = 1;        // that cut elsewhere than wanted
  int64_t leftovers = 1;     // that cut, and are wanted nowhere
  int64_t replicated = 1;    // that do not cut
  int64_t sums = 1;          // that are partial, and are to be so no more
  int64_t blocked = 1;       // strays and replicated ones that are wanted where something else cuts
  int64_t blockers = 1;      // strays and leftovers that cut there
  int64_t bystanders = 1;    // strays that are neither
  int64_t missing_cuts = 1;  // what dimensions are cut too little
  int64_t missing_beyond = 1;  // the same, beyond what replicated atoms can cut
  // How far it is, for a search in haste: bits of what dimensions are cut too little from their
  // tops on, since no permute brings what lies below a hole into its place; and a share of those of
  // atoms that do not cut where they are wanted.
  double disorder = 0;
};

// Counts displacements. Thread-compatible: it remembers the room that it counts in.
class DisplacementCount {
 public:
  explicit DisplacementCount(const SearchSpace& space);
  // Cost: the atoms, times the primes in their sizes.
  Displacement Of(const PackedType& type);

 private:
  void CountPlaces(const PackedType& type, Displacement& counted) const;
  void CountMissingCuts(const PackedType& type, Displacement& counted);
  double MissingBits(const PackedType& type);

  // Of an atom at the destination.
  struct Goal {
    uint8_t code;
    int64_t size;  // the atom's
  };

  const SearchSpace& space_;
  std::vector<Goal> goals_;            // [atom]
  std::vector<AtomSet> in_whose_way_;  // [digit]: atoms that are wanted at one it conflicts with
  std::vector<int64_t> primes_;
  std::vector<double> stray_bits_;    // [atom]
  std::vector<int16_t> exponents_;    // [atom][prime]
  std::vector<int16_t> wanted_cuts_;  // [dimension][prime]
  std::vector<int16_t> left_;         // of wanted_cuts_
  // By dimension: into how many parts it is wanted to be cut, or is from its top on.
  struct CutDimension {
    int64_t wanted = 1;
    int64_t parts = 1;
    int64_t low = 1;  // the stride below which nothing has been found next to that
  };
  std::vector<CutDimension> dimensions_;
};

}  // namespace crossmesh
