#include "controller/store/object_table.h"

#include "common/base/check.h"
#include "common/base/clock.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <absl/status/status.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {

void ObjectTable::Reset(std::vector<StoredObject> objects, int64_t revision) {
  absl::btree_map<std::string, Version> versions;
  for (StoredObject& object : objects) {
    versions[std::move(object.key)] = Version{std::move(object.value), object.revision};
  }
  const MutexLock lock(mutex_);
  objects_.swap(versions);
  if (revision != revision_) {
    commits_.clear();
    forgotten_ = revision;
  }
  revision_ = revision;
  has_changed_.SignalAll();
}

void ObjectTable::Apply(StoredCommit commit) {
  const MutexLock lock(mutex_);
  CHECK_GT(commit.revision, revision_);
  revision_ = commit.revision;
  for (const StoreTransaction::Write& write : commit.writes) {
    if (write.value.has_value()) {
      objects_[write.key] = Version{*write.value, revision_};
    } else {
      objects_.erase(write.key);
    }
  }
  commits_.push_back(std::move(commit));
  if (commits_.size() > commits_kept_) {
    forgotten_ = commits_.front().revision;
    commits_.pop_front();
  }
  has_changed_.SignalAll();
}

void ObjectTable::AwaitRevision(int64_t revision, absl::Duration wait) const {
  const RealClock clock;
  const absl::Duration end = clock.Monotonic() + wait;
  const MutexLock lock(mutex_);
  for (absl::Duration left = wait; revision_ < revision && left > absl::ZeroDuration();
       left = end - clock.Monotonic()) {
    has_changed_.WaitFor(mutex_, left);
  }
}

absl::StatusOr<StoredObject> ObjectTable::Get(absl::string_view key) const {
  const MutexLock lock(mutex_);
  const auto found = objects_.find(key);
  if (found == objects_.end()) return absl::NotFoundError(absl::StrCat("no object ", key));
  return StoredObject{found->first, found->second.value, found->second.revision};
}

int64_t ObjectTable::RevisionOf(absl::string_view key) const {
  const MutexLock lock(mutex_);
  const auto found = objects_.find(key);
  return found == objects_.end() ? 0 : found->second.revision;
}

std::vector<StoredObject> ObjectTable::List(absl::string_view prefix, absl::string_view after,
                                            int64_t limit) const {
  const MutexLock lock(mutex_);
  std::vector<StoredObject> found;
  auto at = after < prefix ? objects_.lower_bound(prefix) : objects_.upper_bound(after);
  for (; at != objects_.end() && absl::StartsWith(at->first, prefix); ++at) {
    if (std::ssize(found) == limit) break;
    found.push_back(StoredObject{at->first, at->second.value, at->second.revision});
  }
  return found;
}

int64_t ObjectTable::revision() const {
  const MutexLock lock(mutex_);
  return revision_;
}

absl::StatusOr<std::vector<StoredCommit>> ObjectTable::CommitsAfter(int64_t revision, int64_t limit,
                                                                    absl::Duration wait) const {
  AwaitRevision(revision + 1, wait);
  const MutexLock lock(mutex_);
  if (revision < forgotten_) {
    return absl::OutOfRangeError(absl::StrCat("commits after revision ", revision,
                                              ": expected one of at least ", forgotten_,
                                              ", after which all are kept"));
  }
  const auto first = std::upper_bound(
      commits_.begin(), commits_.end(), revision,
      [](int64_t after, const StoredCommit& commit) { return after < commit.revision; });
  const int64_t count = std::min<int64_t>(limit, commits_.end() - first);
  return std::vector<StoredCommit>(first, first + count);
}

}  // namespace crossmesh
