#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <absl/container/flat_hash_set.h>

namespace crossmesh {

// Sets of ids (of devices, hosts or racks), each ascending, one after the other in one array: a
// million small sets are no more allocations than one. Thread-compatible.
class IdSetList {
 public:
  // `ids` must ascend and lie outside the list.
  void Add(std::span<const int32_t> ids);
  void Reserve(int64_t sets, int64_t ids);

  int32_t size() const { return static_cast<int32_t>(first_.size()) - 1; }
  std::span<const int32_t> operator[](int32_t set) const {
    return {ids_.data() + first_[set], ids_.data() + first_[set + 1]};
  }
  // Of all sets, one after the other.
  std::span<const int32_t> ids() const { return ids_; }
  int64_t heap_bytes() const;

 private:
  std::vector<int64_t> first_ = {0};  // set i is ids_[first_[i] .. first_[i + 1])
  std::vector<int32_t> ids_;
};

// Interned sets of ids: equal sets have one index. Thread-compatible.
class IdSets {
 public:
  IdSets();

  // The index of the set with these ids (ascending, without repetition), which is added if new.
  int32_t Intern(std::span<const int32_t> ids);
  std::optional<int32_t> Find(std::span<const int32_t> ids) const;

  int32_t size() const { return list_->size(); }
  // Ascending.
  std::span<const int32_t> operator[](int32_t set) const { return (*list_)[set]; }
  int64_t heap_bytes() const;

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::span<const int32_t> ids) const;
    size_t operator()(int32_t set) const { return (*this)((*list)[set]); }
    const IdSetList* list;
  };
  struct Equal {
    using is_transparent = void;
    bool operator()(int32_t a, int32_t b) const { return a == b; }
    bool operator()(int32_t a, std::span<const int32_t> b) const;
    const IdSetList* list;
  };

  std::unique_ptr<IdSetList> list_;  // behind a pointer because the functors refer to it
  absl::flat_hash_set<int32_t, Hash, Equal> index_;
};

}  // namespace crossmesh
