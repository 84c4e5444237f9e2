#pragma once

#include "common/plan/tensor_table.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <absl/container/flat_hash_set.h>

namespace crossmesh {

// Sets of devices, each ascending, one behind the other in one array: a million small sets are no
// more allocations than one. Thread-compatible.
class DeviceSetList {
 public:
  // `ranks` must ascend and lie outside the list.
  void Add(std::span<const DeviceRank> ranks);
  void Reserve(int64_t sets, int64_t ranks);

  int32_t size() const { return static_cast<int32_t>(first_.size()) - 1; }
  std::span<const DeviceRank> operator[](int32_t set) const {
    return {ranks_.data() + first_[set], ranks_.data() + first_[set + 1]};
  }
  // Of all sets, one behind the other.
  std::span<const DeviceRank> ranks() const { return ranks_; }

 private:
  std::vector<int64_t> first_ = {0};  // set i is ranks_[first_[i] .. first_[i + 1])
  std::vector<DeviceRank> ranks_;
};

// Interned sets of devices: equal sets have one index. Thread-compatible.
class DeviceSets {
 public:
  DeviceSets();

  // The index of the set with these ranks (ascending, without repetition), which is added if new.
  int32_t Intern(std::span<const DeviceRank> ranks);
  std::optional<int32_t> Find(std::span<const DeviceRank> ranks) const;

  int32_t size() const { return list_->size(); }
  // Ascending.
  std::span<const DeviceRank> operator[](int32_t set) const { return (*list_)[set]; }

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::span<const DeviceRank> ranks) const;
    size_t operator()(int32_t set) const { return (*this)((*list)[set]); }
    const DeviceSetList* list;
  };
  struct Equal {
    using is_transparent = void;
    bool operator()(int32_t a, int32_t b) const { return a == b; }
    bool operator()(int32_t a, std::span<const DeviceRank> b) const;
    const DeviceSetList* list;
  };

  std::unique_ptr<DeviceSetList> list_;  // behind a pointer because the functors refer to it
  absl::flat_hash_set<int32_t, Hash, Equal> index_;
};

}  // namespace crossmesh
