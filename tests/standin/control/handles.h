#pragma once

#include "common/base/mutex.h"

#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace crossmesh {

// Objects behind the opaque pointers of a C library. A closed object stays, so that a late use of
// its handle is found rather than undefined. Thread-safe.
template <typename Object>
class Handles {
 public:
  Object* Add(std::unique_ptr<Object> object) {
    MutexLock lock(mutex_);
    Object* const pointer = object.get();
    objects_[pointer] = {std::move(object), true};
    return pointer;
  }

  // Null when there is no such object, or it was closed.
  Object* Find(const void* handle) {
    MutexLock lock(mutex_);
    const auto found = objects_.find(handle);
    return found == objects_.end() || !found->second.open ? nullptr : found->second.object.get();
  }

  // The caller is to have found it.
  void Close(const void* handle) {
    MutexLock lock(mutex_);
    objects_.at(handle).open = false;
  }

  std::vector<Object*> Open() {
    MutexLock lock(mutex_);
    std::vector<Object*> open;
    for (const auto& [handle, entry] : objects_) {
      if (entry.open) open.push_back(entry.object.get());
    }
    return open;
  }

 private:
  struct Entry {
    std::unique_ptr<Object> object;
    bool open = false;
  };

  Mutex mutex_;
  std::map<const void*, Entry> objects_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace crossmesh
