#include "controller/network/id_sets.h"

namespace crossmesh {

int32_t IdSets::Intern(std::span<const int32_t> ids) {
  const auto [entry, is_new] = index_.try_emplace({ids.begin(), ids.end()}, size());
  if (is_new) {
    ids_.insert(ids_.end(), ids.begin(), ids.end());
    first_.push_back(static_cast<int64_t>(ids_.size()));
  }
  return entry->second;
}

}  // namespace crossmesh
