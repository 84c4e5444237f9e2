#pragma once

#include "planner/redistribute/derivation.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace crossmesh {

// An index of a tensor, row-major over all dimensions, is a number of mixed radix; a cut is one of
// its digits, from `low` to `high`.
struct IndexDigit {
  int64_t low = 1;
  int64_t high = 1;
  int32_t atom = -1;
};

// A part of the index of which both types of a step cut nothing but the top.
struct IndexPart {
  int64_t low = 1;
  int64_t high = 1;
  bool is_slab = false;
};

// A part of a tensor's index that no step cuts: tensors can be cut there into slabs, each of which
// goes through all steps by itself.
struct SlabPlace {
  int64_t stride = 1;  // elements of the whole tensor from one index to the next
  int64_t length = 1;  // slabs there can be, or any number that divides it
};

// Cuts of a type as digits of the whole index, major first; those of a dimension that does not
// divide are all of it. What cuts a dimension of one element is no digit: no index has it.
class TypeDigits {
 public:
  TypeDigits(const TypeSpace& space, const LocalType& type);

  const std::vector<IndexDigit>& digits() const { return digits_; }
  // Whether a digit is, in part, from `low` to `high`.
  bool Touches(int64_t low, int64_t high) const;
  // The same of dimensions that do not divide.
  bool IsUneven(int64_t low, int64_t high) const;

 private:
  std::vector<IndexDigit> digits_;
  std::vector<IndexPart> uneven_;  // from low to high
};

// Where slabs are cut: the most major part that no type cuts and that leaves enough of them, else
// the longest.
SlabPlace SlabPlaceOf(int64_t elements, std::span<const TypeDigits> types);

// The parts of an index, major first, that both types cut from their tops on or not at all; a slab
// is one by itself.
std::vector<IndexPart> PartsOf(int64_t elements, std::span<const TypeDigits> types,
                               const SlabPlace& place, int64_t slabs);

// What an atom is called as an axis of the mesh that steps are on.
std::string AxisName(int32_t atom);

// Axes that cut a part from its top on, major first; nothing where its cuts are elsewhere.
std::optional<std::vector<std::string>> CutsOf(const TypeDigits& type, const IndexPart& part);

}  // namespace crossmesh
