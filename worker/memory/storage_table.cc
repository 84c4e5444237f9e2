#include "worker/memory/storage_table.h"

#include "common/base/status_macros.h"

#include <algorithm>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

std::string NameOf(const StorageKey& key) {
  return absl::StrCat("storage '", key.name, "' of device ", ToString(key.device));
}

absl::Status OtherSize(const StorageKey& key, int64_t expected, int64_t found) {
  return absl::FailedPreconditionError(
      absl::StrCat(NameOf(key), ": expected ", expected, " bytes, found ", found));
}

}  // namespace

absl::StatusOr<std::shared_ptr<Arena>> MakeHostArena(const StorageKey& key, ByteCount bytes,
                                                     Arena::Pages pages) {
  return Arena::Create(absl::StrCat("crossmesh:", key.name, ":", ToString(key.device)), bytes,
                       pages);
}

StorageTable::StorageTable(Arena::Pages pages)
    : StorageTable([pages](const StorageKey& key, ByteCount bytes) {
        return MakeHostArena(key, bytes, pages);
      }) {}

absl::StatusOr<StorageTable::Opened> StorageTable::Create(const StorageKey& key, int64_t bytes) {
  if (key.name.empty() || bytes < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(NameOf(key), ": expected a name and a size, found ", bytes, " bytes"));
  }
  // Mapped outside of the lock; thrown away when another thread was faster.
  absl::StatusOr<std::shared_ptr<Arena>> arena = absl::UnknownError("not made");
  if (!Status(key).ok()) {
    arena = make_arena_(key, ByteCount(bytes));
    RETURN_IF_ERROR(arena.status());
  }
  MutexLock lock(mutex_);
  static_cast<void>(FindLocked(key));  // drops one that failed
  const auto [found, added] = entries_.try_emplace(key);
  Entry& entry = found->second;
  if (added) {
    if (!arena.ok()) {
      entries_.erase(found);
      return absl::AbortedError(absl::StrCat(NameOf(key), " was just deleted"));
    }
    entry.current = *std::move(arena);
  }
  const int64_t size = std::ssize(entry.current->bytes());
  if (size != bytes) {
    return absl::AlreadyExistsError(
        absl::StrCat(NameOf(key), ": expected ", bytes, " bytes, found one of ", size));
  }
  return Opened{.arena = entry.current, .status = StatusOf(key, entry)};
}

absl::Status StorageTable::Adopt(const StorageKey& key, std::shared_ptr<Arena> arena) {
  MutexLock lock(mutex_);
  const auto [entry, added] = entries_.try_emplace(key);
  if (!added) return absl::AlreadyExistsError(absl::StrCat(NameOf(key), " exists"));
  entry->second.current = std::move(arena);
  return absl::OkStatus();
}

absl::Status StorageTable::Delete(const StorageKey& key) {
  MutexLock lock(mutex_);
  const auto found = entries_.find(key);
  if (found == entries_.end()) return NotThere(key);
  const Entry& entry = found->second;
  if (entry.readers > 0 || entry.writing) {
    return absl::FailedPreconditionError(absl::StrCat(NameOf(key), ": expected no leases, found ",
                                                      entry.readers, " for reading, ",
                                                      entry.writing ? 1 : 0, " for writing"));
  }
  entries_.erase(found);
  return absl::OkStatus();
}

std::vector<StorageStatus> StorageTable::List() const {
  std::vector<StorageStatus> list;
  {
    MutexLock lock(mutex_);
    for (const auto& [key, entry] : entries_) {
      if (!HasFailed(entry)) list.push_back(StatusOf(key, entry));
    }
  }
  std::ranges::sort(list, {}, &StorageStatus::key);
  return list;
}

absl::StatusOr<StorageStatus> StorageTable::Status(const StorageKey& key) const {
  ASSIGN_OR_RETURN(Opened opened, Open(key));
  return std::move(opened.status);
}

absl::StatusOr<StorageTable::Opened> StorageTable::Open(const StorageKey& key) const {
  MutexLock lock(mutex_);
  const auto found = entries_.find(key);
  if (found == entries_.end()) return NotThere(key);
  if (HasFailed(found->second)) return NotThere(key, found->second);
  return Opened{.arena = found->second.current, .status = StatusOf(key, found->second)};
}

absl::StatusOr<StorageTable::Lease> StorageTable::LeaseForReading(const StorageKey& key,
                                                                  int64_t bytes) {
  MutexLock lock(mutex_);
  ASSIGN_OR_RETURN(Entry * entry, FindLocked(key));
  if (entry->state == StorageState::kDirty) {
    return absl::FailedPreconditionError(
        absl::StrCat(NameOf(key), " is DIRTY: it was received in place and not committed"));
  }
  const int64_t size = std::ssize(entry->current->bytes());
  if (size != bytes) return OtherSize(key, bytes, size);
  entry->readers++;
  return Lease(*this, key, entry->current, /*writes=*/false);
}

absl::StatusOr<StorageTable::Lease> StorageTable::LeaseForWriting(const StorageKey& key,
                                                                  int64_t bytes, bool shadow) {
  MutexLock lock(mutex_);
  ASSIGN_OR_RETURN(Entry * entry, FindLocked(key));
  if (entry->writing) {
    return absl::AbortedError(absl::StrCat(NameOf(key), " is being written by somebody else"));
  }
  const int64_t size = std::ssize(entry->current->bytes());
  if (size != bytes) return OtherSize(key, bytes, size);
  if (!shadow && entry->readers > 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        NameOf(key), ": expected no readers before writing in place, found ", entry->readers));
  }
  // A shadow that readers from before the last flip still hold is not ours to write.
  if (shadow && (entry->alternate == nullptr || entry->alternate.use_count() > 1 ||
                 !entry->alternate->status().ok())) {
    ASSIGN_OR_RETURN(entry->alternate, make_arena_(key, ByteCount(bytes)));
  }
  entry->writing = true;
  Lease lease(*this, key, shadow ? entry->alternate : entry->current, /*writes=*/true);
  // Dirty from now on, so that no reader gets half of what is written; the lease puts the state
  // back if nothing was.
  if (!shadow) lease.state_unwritten_ = std::exchange(entry->state, StorageState::kDirty);
  return lease;
}

absl::Status StorageTable::Commit(Lease lease) {
  if (lease.table_ != this || !lease.writes_) {
    return absl::FailedPreconditionError(
        absl::StrCat(NameOf(lease.key_), ": expected a lease for writing to commit"));
  }
  MutexLock lock(mutex_);
  Entry& entry = entries_.at(lease.key_);
  // What readers had until now is the next shadow.
  if (lease.arena_ == entry.alternate) std::swap(entry.current, entry.alternate);
  entry.state = StorageState::kReady;
  entry.generation++;
  entry.writing = false;
  // It has ended here: its destructor must not release it.
  lease.table_ = nullptr;
  return absl::OkStatus();
}

void StorageTable::Release(const Lease& lease) {
  MutexLock lock(mutex_);
  Entry& entry = entries_.at(lease.key_);
  if (lease.writes_) {
    entry.writing = false;
    entry.state = lease.state_unwritten_.value_or(entry.state);
  } else {
    entry.readers--;
  }
}

StorageStatus StorageTable::StatusOf(const StorageKey& key, const Entry& entry) {
  return {.key = key,
          .bytes = std::ssize(entry.current->bytes()),
          .generation = entry.generation,
          .state = entry.state,
          .readers = entry.readers,
          .writing = entry.writing,
          .gpu = entry.current->device_memory() == nullptr ? ""
                                                           : entry.current->device_memory()->gpu()};
}

absl::StatusOr<StorageTable::Entry*> StorageTable::FindLocked(const StorageKey& key) {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return NotThere(key);
  if (!HasFailed(found->second)) return &found->second;
  const absl::Status status = NotThere(key, found->second);
  // Leases find their entry until they end.
  if (found->second.readers == 0 && !found->second.writing) entries_.erase(found);
  return status;
}

absl::Status StorageTable::NotThere(const StorageKey& key) {
  return absl::NotFoundError(absl::StrCat(NameOf(key), " not found"));
}

absl::Status StorageTable::NotThere(const StorageKey& key, const Entry& failed) {
  return absl::NotFoundError(absl::StrCat(
      NameOf(key), " not found: it could not be made: ", failed.current->status().message()));
}

StorageTable::Lease& StorageTable::Lease::operator=(Lease&& other) noexcept {
  if (this == &other) return *this;
  End();
  table_ = std::exchange(other.table_, nullptr);
  key_ = std::move(other.key_);
  arena_ = std::move(other.arena_);
  writes_ = other.writes_;
  state_unwritten_ = other.state_unwritten_;
  return *this;
}

void StorageTable::Lease::End() {
  if (table_ == nullptr) return;
  table_->Release(*this);
  table_ = nullptr;
}

}  // namespace crossmesh
