#pragma once

#include "common/base/digest.h"
#include "common/base/mutex.h"

#include <algorithm>
#include <cstdint>
#include <list>
#include <memory>
#include <utility>
#include <vector>

#include <absl/container/flat_hash_map.h>

namespace crossmesh {

// The most recently used values by digest, within a bound on their summed weight (bytes, say). A
// value heavier than the bound is not kept. Values are shared and immutable; they go away without
// the lock, since large ones take long. Thread-safe.
template <typename T>
class PlanCache {
 public:
  explicit PlanCache(int64_t weight_max) : weight_max_(weight_max) {}

  struct Entry {
    std::shared_ptr<const T> value;
    int64_t weight = 0;
    std::vector<int64_t> objects = {};  // that it was made of, as numbers
  };

  // Null when it is not there.
  std::shared_ptr<const T> Find(const Digest& key) {
    const MutexLock lock(mutex_);
    const auto found = index_.find(key);
    if (found == index_.end()) return nullptr;
    entries_.splice(entries_.begin(), entries_, found->second);
    return found->second->second.value;
  }

  void Insert(const Digest& key, Entry entry) {
    Entries gone;
    const MutexLock lock(mutex_);
    if (const auto found = index_.find(key); found != index_.end()) Take(found->second, gone);
    weight_ += entry.weight;
    entries_.emplace_front(key, std::move(entry));
    index_[key] = entries_.begin();
    Shrink(entries_.begin(), gone);
  }

  // Of a value that has grown, if it is there.
  void SetWeight(const Digest& key, int64_t weight) {
    Entries gone;
    const MutexLock lock(mutex_);
    const auto found = index_.find(key);
    if (found == index_.end()) return;
    weight_ += weight - found->second->second.weight;
    found->second->second.weight = weight;
    Shrink(found->second, gone);
  }

  void Erase(const Digest& key) {
    Entries gone;
    const MutexLock lock(mutex_);
    if (const auto found = index_.find(key); found != index_.end()) Take(found->second, gone);
  }

  // All that was made of that object. Cost: linear in the entries.
  void EraseOf(int64_t object) {
    Entries gone;
    const MutexLock lock(mutex_);
    for (auto entry = entries_.begin(); entry != entries_.end();) {
      const auto next = std::next(entry);
      if (std::ranges::count(entry->second.objects, object) > 0) Take(entry, gone);
      entry = next;
    }
  }

  int64_t size() const {
    const MutexLock lock(mutex_);
    return static_cast<int64_t>(entries_.size());
  }
  int64_t weight() const {
    const MutexLock lock(mutex_);
    return weight_;
  }

 private:
  using Entries = std::list<std::pair<Digest, Entry>>;  // most recently used first

  void Take(typename Entries::iterator entry, Entries& gone) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    weight_ -= entry->second.weight;
    index_.erase(entry->first);
    gone.splice(gone.begin(), entries_, entry);
  }

  // Makes room after `changed` has come or grown.
  void Shrink(typename Entries::iterator changed, Entries& gone)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (changed->second.weight > weight_max_) return Take(changed, gone);
    while (weight_ > weight_max_) Take(std::prev(entries_.end()), gone);
  }

  const int64_t weight_max_;

  mutable Mutex mutex_;
  Entries entries_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<Digest, typename Entries::iterator> index_ ABSL_GUARDED_BY(mutex_);
  int64_t weight_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace crossmesh
