#include "common/plan/id_sets.h"

#include "common/base/heap_bytes.h"

#include <algorithm>

#include <absl/hash/hash.h>
#include <absl/types/span.h>

namespace crossmesh {

void IdSetList::Add(std::span<const int32_t> ids) {
  ids_.insert(ids_.end(), ids.begin(), ids.end());
  first_.push_back(static_cast<int64_t>(ids_.size()));
}

void IdSetList::Reserve(int64_t sets, int64_t ids) {
  first_.reserve(sets + 1);
  ids_.reserve(ids);
}

size_t IdSets::Hash::operator()(std::span<const int32_t> ids) const {
  return absl::HashOf(absl::MakeConstSpan(ids.data(), ids.size()));
}

bool IdSets::Equal::operator()(int32_t a, std::span<const int32_t> b) const {
  return std::ranges::equal((*list)[a], b);
}

IdSets::IdSets()
    : list_(std::make_unique<IdSetList>()), index_(0, Hash{list_.get()}, Equal{list_.get()}) {}

int32_t IdSets::Intern(std::span<const int32_t> ids) {
  if (const auto found = index_.find(ids); found != index_.end()) return *found;
  const int32_t set = size();
  list_->Add(ids);
  index_.insert(set);
  return set;
}

std::optional<int32_t> IdSets::Find(std::span<const int32_t> ids) const {
  const auto found = index_.find(ids);
  if (found == index_.end()) return std::nullopt;
  return *found;
}

int64_t IdSetList::heap_bytes() const { return HeapBytes(first_) + HeapBytes(ids_); }

int64_t IdSets::heap_bytes() const {
  return AllocationBytes(sizeof(IdSetList)) + list_->heap_bytes() + TableBytes(index_);
}

}  // namespace crossmesh
