#include "common/plan/device_sets.h"

#include <algorithm>

#include <absl/hash/hash.h>
#include <absl/types/span.h>

namespace crossmesh {

void DeviceSetList::Add(std::span<const DeviceRank> ranks) {
  ranks_.insert(ranks_.end(), ranks.begin(), ranks.end());
  first_.push_back(static_cast<int64_t>(ranks_.size()));
}

void DeviceSetList::Reserve(int64_t sets, int64_t ranks) {
  first_.reserve(sets + 1);
  ranks_.reserve(ranks);
}

size_t DeviceSets::Hash::operator()(std::span<const DeviceRank> ranks) const {
  return absl::HashOf(absl::MakeConstSpan(ranks.data(), ranks.size()));
}

bool DeviceSets::Equal::operator()(int32_t a, std::span<const DeviceRank> b) const {
  return std::ranges::equal((*list)[a], b);
}

DeviceSets::DeviceSets()
    : list_(std::make_unique<DeviceSetList>()), index_(0, Hash{list_.get()}, Equal{list_.get()}) {}

int32_t DeviceSets::Intern(std::span<const DeviceRank> ranks) {
  if (const auto found = index_.find(ranks); found != index_.end()) return *found;
  const int32_t set = size();
  list_->Add(ranks);
  index_.insert(set);
  return set;
}

std::optional<int32_t> DeviceSets::Find(std::span<const DeviceRank> ranks) const {
  const auto found = index_.find(ranks);
  if (found == index_.end()) return std::nullopt;
  return *found;
}

}  // namespace crossmesh
