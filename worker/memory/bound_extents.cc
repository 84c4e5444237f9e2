#include "worker/memory/bound_extents.h"

#include <algorithm>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

std::string NameOf(const Arena& allocation) {
  const std::string& handle = allocation.device_memory()->ipc_handle();
  if (!handle.empty()) return handle;
  // Whatever is bound to it keeps it, so that no other one has its address.
  return absl::StrCat(absl::Hex(reinterpret_cast<uintptr_t>(allocation.device_memory().get())));
}

}  // namespace

BoundExtents BoundExtents::OfLoan(const Arena& allocation) {
  BoundExtents extents;
  extents.Add(allocation, {.begin = 0, .end = std::ssize(allocation.bytes())});
  return extents;
}

BoundExtents BoundExtents::OfPieces(std::span<const BoundPiece> pieces) {
  BoundExtents extents;
  for (const BoundPiece& piece : pieces) {
    extents.Add(*piece.allocation,
                {.begin = piece.allocation_offset, .end = piece.allocation_offset + piece.bytes});
  }
  extents.Merge();
  return extents;
}

void BoundExtents::Add(const Arena& allocation, Extent extent) {
  extents_[NameOf(allocation)].push_back(extent);
}

void BoundExtents::Merge() {
  for (auto& [allocation, extents] : extents_) {
    std::ranges::sort(extents, {}, &Extent::begin);
    std::vector<Extent> merged;
    for (const Extent& extent : extents) {
      if (merged.empty() || merged.back().end < extent.begin) {
        merged.push_back(extent);
      } else {
        merged.back().end = std::max(merged.back().end, extent.end);
      }
    }
    extents = std::move(merged);
  }
}

bool BoundExtents::Overlaps(const BoundExtents& other) const {
  for (const auto& [allocation, extents] : extents_) {
    const auto found = other.extents_.find(allocation);
    if (found == other.extents_.end()) continue;
    auto next = found->second.begin();
    for (const Extent& extent : extents) {
      while (next != found->second.end() && next->end <= extent.begin) ++next;
      if (next == found->second.end()) break;
      if (next->begin < extent.end) return true;
    }
  }
  return false;
}

}  // namespace crossmesh
