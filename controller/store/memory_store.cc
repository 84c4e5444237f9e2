#include "controller/store/memory_store.h"

#include "common/base/status_macros.h"

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {

absl::StatusOr<int64_t> MemoryStore::Commit(const StoreTransaction& transaction) {
  const MutexLock lock(mutex_);
  if (transaction.epoch < epoch_) {
    return absl::AbortedError(
        absl::StrCat("epoch ", transaction.epoch, " is fenced: the store has seen epoch ", epoch_));
  }
  // All requirements before the first write: a commit does all or nothing.
  RETURN_IF_ERROR(CheckRequirements(transaction));
  epoch_ = transaction.epoch;
  ++revision_;
  for (const StoreTransaction::Write& write : transaction.writes) {
    if (write.value.has_value()) {
      objects_[write.key] = Version{*write.value, revision_};
    } else {
      objects_.erase(write.key);
    }
  }
  return revision_;
}

absl::Status MemoryStore::CheckRequirements(const StoreTransaction& transaction) const {
  for (const StoreTransaction::Requirement& required : transaction.requirements) {
    const auto found = objects_.find(required.key);
    const int64_t revision = found == objects_.end() ? 0 : found->second.revision;
    if (revision == required.revision) continue;
    return absl::AbortedError(absl::StrCat("object ", required.key, ": expected revision ",
                                           required.revision, ", found ", revision));
  }
  return absl::OkStatus();
}

absl::StatusOr<StoredObject> MemoryStore::Get(absl::string_view key) const {
  const MutexLock lock(mutex_);
  const auto found = objects_.find(key);
  if (found == objects_.end()) return absl::NotFoundError(absl::StrCat("no object ", key));
  return StoredObject{found->first, found->second.value, found->second.revision};
}

absl::StatusOr<int64_t> MemoryStore::RevisionOf(absl::string_view key) const {
  const MutexLock lock(mutex_);
  const auto found = objects_.find(key);
  return found == objects_.end() ? 0 : found->second.revision;
}

absl::StatusOr<std::vector<StoredObject>> MemoryStore::List(absl::string_view prefix,
                                                            absl::string_view after,
                                                            int64_t limit) const {
  const MutexLock lock(mutex_);
  std::vector<StoredObject> found;
  auto at = after < prefix ? objects_.lower_bound(prefix) : objects_.upper_bound(after);
  for (; at != objects_.end() && absl::StartsWith(at->first, prefix); ++at) {
    if (static_cast<int64_t>(found.size()) == limit) break;
    found.push_back(StoredObject{at->first, at->second.value, at->second.revision});
  }
  return found;
}

}  // namespace crossmesh
