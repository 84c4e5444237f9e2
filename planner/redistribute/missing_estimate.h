#pragma once

#include "planner/redistribute/search_space.h"

#include <cstdint>
#include <vector>

namespace crossmesh {

// How many elements of the destination the neediest device misses, at least, for packed types: the
// heuristic of the search. No step brings a device more elements than the step is charged for, so
// it is admissible and consistent. Thread-compatible: it remembers what it has counted.
class MissingEstimate {
 public:
  // A digit and the atom whose coordinate it is.
  struct PlacedDigit {
    int atom;
    const Digit* digit;
  };

  explicit MissingEstimate(const SearchSpace& space);

  // Never more than FindNeediestDevice says; equal to it unless primes mix in several dimensions.
  // Cost: the atoms squared.
  int64_t Elements(const PackedType& type);

 private:
  // What a device has in common at least and at most over coordinates, of one dimension's indices.
  struct Range {
    int64_t least = 0;
    int64_t most = 0;
  };
  // Of a digit to those that the destination wants.
  struct Relation {
    bool wanted_by_any = false;
    AtomSet coupled;  // that want a digit which overlaps with it
  };
  bool FindCuts(const PackedType& type);
  Range CommonIndices(int dimension, const PackedType& type);
  bool LeavesOut(const Digit& held, const Digit& wanted);
  Range CountIndices(int dimension, const PackedType& type) const;

  const SearchSpace& space_;
  int64_t wanted_;  // elements of a device at the destination
  int64_t fixed_;   // of those, in dimensions that a rule cuts, which every device has as wanted
  std::vector<std::vector<PlacedDigit>> wanted_digits_;  // [dimension]
  std::vector<int64_t> wanted_lengths_;                  // [dimension], of a device
  std::vector<PackedTypeMap<Range>> seen_;               // [dimension]
  std::vector<Relation> relations_;                      // [digit]
  std::vector<int64_t> independent_;  // [dimension], product of cuts that overlap with none
  std::vector<bool> coupled_;         // [dimension], whether there are others
  std::vector<int8_t> leaves_out_;    // [digit][digit]; -1: not known yet
};

}  // namespace crossmesh
