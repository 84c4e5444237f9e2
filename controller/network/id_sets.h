#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <absl/container/flat_hash_map.h>

namespace crossmesh {

// Ascending lists of ids, equal ones stored once and named by an index. Thread-compatible.
class IdSets {
 public:
  // The index of the set with exactly these ids, which must ascend. Cost: linear in the ids.
  int32_t Intern(std::span<const int32_t> ids);

  std::span<const int32_t> operator[](int32_t set) const {
    return {ids_.data() + first_[set], ids_.data() + first_[set + 1]};
  }
  int32_t size() const { return static_cast<int32_t>(first_.size()) - 1; }

 private:
  std::vector<int64_t> first_ = {0};  // set i is ids_[first_[i] .. first_[i + 1])
  std::vector<int32_t> ids_;
  absl::flat_hash_map<std::vector<int32_t>, int32_t> index_;
};

}  // namespace crossmesh
