#include "controller/store/memory_store.h"

#include "common/base/status_macros.h"

#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {

void MemoryStore::CommitThen(StoreTransaction transaction, CommitDone done) {
  done(Apply(std::move(transaction)));
}

absl::StatusOr<int64_t> MemoryStore::Apply(StoreTransaction transaction) {
  const MutexLock lock(mutex_);
  if (transaction.epoch < epoch_) {
    return absl::AbortedError(
        absl::StrCat("epoch ", transaction.epoch, " is fenced: the store has seen epoch ", epoch_));
  }
  // All requirements before the first write: a commit does all or nothing.
  RETURN_IF_ERROR(CheckRequirements(transaction));
  epoch_ = transaction.epoch;
  const int64_t revision = table_.revision() + 1;
  table_.Apply({revision, std::move(transaction.writes)});
  return revision;
}

absl::Status MemoryStore::CheckRequirements(const StoreTransaction& transaction) const {
  for (const StoreTransaction::Requirement& required : transaction.requirements) {
    const int64_t revision = table_.RevisionOf(required.key);
    if (revision == required.revision) continue;
    return absl::AbortedError(absl::StrCat("object ", required.key, ": expected revision ",
                                           required.revision, ", found ", revision));
  }
  return absl::OkStatus();
}

}  // namespace crossmesh
