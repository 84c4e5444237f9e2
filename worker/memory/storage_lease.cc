#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "worker/memory/memory_charge.h"
#include "worker/memory/sequence_page.h"
#include "worker/memory/storage_errors.h"
#include "worker/memory/storage_table.h"

#include <algorithm>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {

StorageTable::Lease& StorageTable::Lease::operator=(Lease&& other) noexcept {
  if (this == &other) return *this;
  End();
  table_ = std::exchange(other.table_, nullptr);
  key_ = std::move(other.key_);
  arena_ = std::move(other.arena_);
  use_ = other.use_;
  state_unwritten_ = other.state_unwritten_;
  spared_bytes_ = std::exchange(other.spared_bytes_, 0);
  sequence_ = std::move(other.sequence_);
  user_at_rest_ = other.user_at_rest_;
  return *this;
}

absl::Status StorageTable::Lease::CheckUndisturbed() const {
  return sequence_ == nullptr ? absl::OkStatus() : sequence_->CheckStill(user_at_rest_);
}

void StorageTable::Lease::End() {
  if (table_ == nullptr) return;
  if (spared_bytes_ > 0) arena_->charge()->Add(std::exchange(spared_bytes_, 0));
  table_->Release(*this);
  table_ = nullptr;
}

absl::StatusOr<StorageTable::Lease> StorageTable::LeaseForConsuming(const StorageKey& key,
                                                                    int64_t bytes,
                                                                    const Consuming& how) {
  ASSIGN_OR_RETURN(Lease lease, LeaseForReading(key, bytes, how.user));
  MutexLock lock(mutex_);
  Entry& entry = entries_.at(key);
  absl::Status status;
  if (!lease.arena_->can_release()) {
    status = absl::FailedPreconditionError(
        absl::StrCat(NameOf(key),
                     ": expected this worker's own memory of the host, in small "
                     "pages, to be released; found other memory"));
  } else if (entry.uses.size() > 1) {
    status = absl::FailedPreconditionError(absl::StrCat(
        NameOf(key), ": expected no leases before it is given up, found ", UsersOf(entry)));
  }
  if (!status.ok()) {
    entry.uses.erase(lease.use_);
    lease.table_ = nullptr;
    return status;
  }
  lease.use_->writes = true;
  lease.state_unwritten_ = std::exchange(entry.state, StorageState::kDirty);
  if (MemoryCharge* const charge = lease.arena_->charge()) {
    lease.spared_bytes_ = std::min(how.spared_bytes, charge->bytes());
    charge->Add(-lease.spared_bytes_);
  }
  return lease;
}

void StorageTable::Consume(Lease lease) {
  CHECK(lease.table_ == this && lease.use_->writes);
  // It ends here, and what it spared is gone with the memory; which goes after the lock.
  lease.table_ = nullptr;
  MutexLock lock(mutex_);
  entries_.erase(lease.key_);
}

}  // namespace crossmesh
