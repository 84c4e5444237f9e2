#include "worker/gpu/communicators/rank_splits.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {

RankSplit* RankSplits::Find(const RankGroups& groups) const {
  const auto found = std::ranges::find_if(
      splits_, [&](const std::unique_ptr<RankSplit>& split) { return split->groups == groups; });
  return found == splits_.end() ? nullptr : found->get();
}

bool RankSplits::Use(const RankGroups& groups) {
  const auto found = std::ranges::find_if(
      splits_, [&](const std::unique_ptr<RankSplit>& split) { return split->groups == groups; });
  if (found == splits_.end()) return false;
  std::rotate(found, std::next(found), splits_.end());
  return true;
}

RankSplit& RankSplits::Add(RankGroups groups, int self, const std::string& name) {
  RankSplit& split = *splits_.emplace_back(std::make_unique<RankSplit>());
  split.groups = std::move(groups);
  for (size_t color = 0; color < split.groups.size(); ++color) {
    const std::vector<int>& group = split.groups[color];
    const auto own = std::ranges::find(group, self);
    if (own == group.end()) continue;
    split.color = static_cast<int>(color);
    split.rank = static_cast<int>(own - group.begin());
    split.size = static_cast<int>(group.size());
  }
  split.name = absl::StrCat(name, ", group ", split.color, " of ", split.groups.size());
  return split;
}

ncclComm_t RankSplits::RemoveOldest() {
  const ncclComm_t handle = splits_.front()->handle;
  splits_.erase(splits_.begin());
  return handle;
}

}  // namespace crossmesh
