#include "worker/gpu/tasks/device_parts.h"

#include "common/base/status_macros.h"

#include <algorithm>
#include <utility>

namespace crossmesh {

absl::StatusOr<std::shared_ptr<const DeviceParts::Parts>> DeviceParts::Of(const WorkerPart& part) {
  const auto found = std::ranges::find(entries_, part.digest(), &Entry::digest);
  if (found != entries_.end()) {
    entries_.splice(entries_.begin(), entries_, found);
    return found->parts;
  }
  auto parts = std::make_shared<Parts>();
  for (const DeviceRank device : part.spec().devices) {
    ASSIGN_OR_RETURN(WorkerPart cut, CutPart(part, {device}));
    parts->push_back(std::make_shared<const WorkerPart>(std::move(cut)));
  }
  entries_.push_front({.digest = part.digest(), .parts = parts});
  if (entries_.size() > kPartsMax) entries_.pop_back();
  return parts;
}

}  // namespace crossmesh
