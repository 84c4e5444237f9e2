#include "worker/tasks/part_cache.h"

#include <utility>

namespace crossmesh {

std::shared_ptr<const LaidOutPart> PartCache::Find(const Digest& digest) {
  const auto found = parts_.find(digest);
  if (found == parts_.end()) return nullptr;
  by_age_.splice(by_age_.begin(), by_age_, found->second.age);
  return found->second.part;
}

void PartCache::Insert(const Digest& digest, std::shared_ptr<const LaidOutPart> part,
                       int64_t bytes) {
  if (Find(digest) != nullptr) return;
  by_age_.push_front(digest);
  parts_[digest] = Entry{.part = std::move(part), .bytes = bytes, .age = by_age_.begin()};
  bytes_ += bytes;
  while (parts_.size() > 1 && (parts_.size() > limits_.parts || bytes_ > limits_.bytes)) {
    DropOldest();
  }
}

void PartCache::DropOldest() {
  const auto oldest = parts_.find(by_age_.back());
  bytes_ -= oldest->second.bytes;
  parts_.erase(oldest);
  by_age_.pop_back();
}

}  // namespace crossmesh
