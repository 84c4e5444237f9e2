#pragma once

#include "planner/redistribute/local_type.h"

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include <absl/container/flat_hash_map.h>

namespace crossmesh {

// Atoms of size over 1 of a mesh of 65,536 devices.
inline constexpr int kSearchAtomsMax = 16;
// Digits that a search looks at.
inline constexpr int kDigitsMax = 248;
using DigitSet = std::bitset<kDigitsMax>;
using AtomSet = std::bitset<kSearchAtomsMax>;

// A place where an atom of that size can cut: index i of the dimension has (i / stride) % size.
struct Digit {
  int dimension = 0;
  int64_t stride = 1;
  int64_t size = 1;
  friend bool operator==(const Digit&, const Digit&) = default;
};

// A local type in 16 bytes: for each atom a code. Codes from kFirstDigit on are digits.
using PackedType = std::array<uint8_t, kSearchAtomsMax>;
// At one glance: the library compares such arrays by a call.
struct PackedTypeEqual {
  bool operator()(const PackedType& a, const PackedType& b) const {
    uint64_t left[2];
    uint64_t right[2];
    std::memcpy(left, a.data(), sizeof(left));
    std::memcpy(right, b.data(), sizeof(right));
    return ((left[0] ^ right[0]) | (left[1] ^ right[1])) == 0;
  }
};
struct PackedTypeHash {
  size_t operator()(const PackedType& type) const {
    uint64_t halves[2];
    std::memcpy(halves, type.data(), sizeof(halves));
    const uint64_t mixed = (halves[0] * 0x9e3779b97f4a7c15) ^ (halves[1] + 0x7f4a7c159e3779b9);
    return (mixed ^ (mixed >> 29)) * 0xbf58476d1ce4e5b9;
  }
};
template <typename Value>
using PackedTypeMap = absl::flat_hash_map<PackedType, Value, PackedTypeHash, PackedTypeEqual>;
inline constexpr uint8_t kReplicatedCode = 0;
inline constexpr uint8_t kPartialCode = 1;
inline constexpr uint8_t kFixedCode = 2;  // cuts a dimension by a rule, the same at both ends
inline constexpr uint8_t kFirstDigit = 3;

// The types that a search goes through: those whose cuts are digits of its table. Dimensions that
// do not divide keep their cuts. Immutable.
class SearchSpace {
 public:
  // Nothing when the two ends differ in a dimension that does not divide, for which only a relay
  // will do, or when there are more atoms than a search looks at.
  static std::optional<SearchSpace> Create(const TypeSpace& space);

  const TypeSpace& types() const { return *types_; }
  int atoms() const { return types_->atom_count(); }
  // Of atoms, each once, ascending.
  const std::vector<int64_t>& sizes() const { return sizes_; }
  int64_t size(int atom) const { return types_->atoms()[atom].size; }
  std::span<const Digit> digits() const { return digits_; }
  // Digits that cannot be cut together with this one, itself among them.
  const DigitSet& conflicts(int digit) const { return conflicts_[digit]; }
  // Digits of an atom's size, the most major first within each dimension.
  std::span<const int> digits_of_size(int64_t size) const;
  std::optional<int> Find(const Digit& digit) const;

  // Whether a dimension does not divide, and so keeps its cuts.
  bool is_fixed(int dimension) const { return fixed_[dimension]; }
  const PackedType& source() const { return source_; }
  const PackedType& destination() const { return destination_; }
  // Elements of a local array: the same on every device, or of the largest where a rule cuts.
  int64_t LocalElements(const PackedType& type) const;
  // `type` must have cuts of this space only.
  PackedType Pack(const LocalType& type) const;
  LocalType Unpack(const PackedType& type) const;

 private:
  explicit SearchSpace(const TypeSpace& space) : types_(&space) {}
  bool FindFixedDimensions();
  void ListDigits();
  void AddDigits(const LocalType& type);
  void AddFreeDigits(int dimension, size_t digits_max);
  void Add(const Digit& digit);

  const TypeSpace* types_;
  std::vector<bool> fixed_;     // dimensions
  int64_t elements_ = 1;        // of the tensor; of the largest part where a rule cuts
  std::vector<int64_t> sizes_;  // that atoms have, ascending
  std::vector<Digit> digits_;
  std::vector<DigitSet> conflicts_;
  std::vector<std::vector<int>> by_size_;  // as sizes_
  PackedType source_{};
  PackedType destination_{};
};

}  // namespace crossmesh
