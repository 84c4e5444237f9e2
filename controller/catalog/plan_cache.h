#pragma once

#include "common/base/digest.h"
#include "common/base/mutex.h"

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <utility>

#include <absl/container/flat_hash_map.h>

namespace crossmesh {

// The most recently used values by digest, within a bound on their summed weight (bytes, say). A
// value heavier than the bound is not kept. Values are shared and immutable. Thread-safe.
template <typename T>
class PlanCache {
 public:
  explicit PlanCache(int64_t weight_max) : weight_max_(weight_max) {}

  // Null when it is not there.
  std::shared_ptr<const T> Find(const Digest& key) {
    const MutexLock lock(mutex_);
    const auto found = index_.find(key);
    if (found == index_.end()) return nullptr;
    entries_.splice(entries_.begin(), entries_, found->second);
    return found->second->value;
  }

  void Insert(const Digest& key, std::shared_ptr<const T> value, int64_t weight) {
    if (weight > weight_max_) return;
    const MutexLock lock(mutex_);
    if (const auto found = index_.find(key); found != index_.end()) Erase(found->second);
    entries_.push_front(Entry{key, std::move(value), weight});
    index_[key] = entries_.begin();
    weight_ += weight;
    while (weight_ > weight_max_) Erase(std::prev(entries_.end()));
  }

  int64_t size() const {
    const MutexLock lock(mutex_);
    return static_cast<int64_t>(entries_.size());
  }

 private:
  struct Entry {
    Digest key;
    std::shared_ptr<const T> value;
    int64_t weight = 0;
  };
  using Entries = std::list<Entry>;  // most recently used first

  void Erase(typename Entries::iterator entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    weight_ -= entry->weight;
    index_.erase(entry->key);
    entries_.erase(entry);
  }

  const int64_t weight_max_;

  mutable Mutex mutex_;
  Entries entries_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<Digest, typename Entries::iterator> index_ ABSL_GUARDED_BY(mutex_);
  int64_t weight_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace crossmesh
