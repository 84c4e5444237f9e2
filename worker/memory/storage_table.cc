#include "worker/memory/storage_table.h"

#include "common/base/status_macros.h"
#include "worker/memory/bound_extents.h"
#include "worker/memory/sequence_page.h"
#include "worker/memory/storage_errors.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

namespace crossmesh {
namespace {

// Whether it is memory of a user process.
bool IsOfUser(const Arena& arena) {
  return arena.device_memory() != nullptr &&
         arena.device_memory()->kind() != DeviceMemory::Kind::kOwn;
}

// It was there, and its GPU has lost it.
bool IsLost(const Arena& arena) { return !LossOf(arena).ok(); }

// It could not be made.
bool HasFailed(const Arena& arena) { return !arena.status().ok() && !IsLost(arena); }

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
  MakeWayLocked(key);
  const auto [found, added] = entries_.try_emplace(key);
  Entry& entry = found->second;
  if (!added && IsLost(*entry.current)) return Lost(key, *entry.current);
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
  entry.provisional = false;
  return Opened{.arena = entry.current, .status = StatusOf(key, entry)};
}

absl::Status StorageTable::Adopt(const StorageKey& key, std::shared_ptr<Arena> arena) {
  MutexLock lock(mutex_);
  const auto [entry, added] = entries_.try_emplace(key);
  if (!added) return absl::AlreadyExistsError(absl::StrCat(NameOf(key), " exists"));
  entry->second.current = std::move(arena);
  return absl::OkStatus();
}

absl::StatusOr<StorageTable::Opened> StorageTable::Bind(
    const StorageKey& key, std::shared_ptr<Arena> arena, uint64_t generation,
    std::shared_ptr<const BoundExtents> extents) {
  MutexLock lock(mutex_);
  MakeWayLocked(key);
  const auto found = entries_.find(key);
  if (found == entries_.end()) {
    if (generation != 0) return NotThere(key);
    Entry& made = entries_[key];
    made.current = std::move(arena);
    made.extents = std::move(extents);
    return Opened{.arena = made.current, .status = StatusOf(key, made)};
  }
  Entry& entry = found->second;
  RETURN_IF_ERROR(CheckBindable(key, entry, *arena, generation));
  entry.current = std::move(arena);
  entry.extents = std::move(extents);
  entry.state = StorageState::kReady;
  NextGeneration(entry);
  return Opened{.arena = entry.current, .status = StatusOf(key, entry)};
}

absl::StatusOr<StorageTable::Opened> StorageTable::OpenSequence(const StorageKey& key) {
  MutexLock lock(mutex_);
  ASSIGN_OR_RETURN(Entry* const entry, FindLocked(key));
  if (entry->sequence == nullptr) {
    ASSIGN_OR_RETURN(entry->sequence, SequencePage::Create(NameOf(key), entry->generation));
  }
  return Opened{.arena = entry->sequence->arena(), .status = StatusOf(key, *entry)};
}

absl::Status StorageTable::CheckBindable(const StorageKey& key, const Entry& entry,
                                         const Arena& arena, uint64_t generation) {
  if (generation == 0) {
    return absl::AlreadyExistsError(
        absl::StrCat(NameOf(key), ": expected none, found one of generation ", entry.generation));
  }
  if (generation != entry.generation) {
    return absl::AbortedError(absl::StrCat(NameOf(key), ": expected generation ", generation,
                                           ", found ", entry.generation));
  }
  const DeviceMemory* const memory = entry.current->device_memory().get();
  if (memory == nullptr || memory->kind() != arena.device_memory()->kind()) {
    return absl::FailedPreconditionError(
        absl::StrCat(NameOf(key), ": expected one that is bound, found other memory"));
  }
  if (entry.uses.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(NameOf(key), ": expected no leases, found ", UsersOf(entry)));
}

absl::Status StorageTable::Delete(const StorageKey& key) {
  MutexLock lock(mutex_);
  const auto found = entries_.find(key);
  if (found == entries_.end()) return NotThere(key);
  if (!found->second.uses.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(NameOf(key), ": expected no leases, found ", UsersOf(found->second)));
  }
  entries_.erase(found);
  return absl::OkStatus();
}

absl::Status StorageTable::Trim(const StorageKey& key) {
  MutexLock lock(mutex_);
  ASSIGN_OR_RETURN(Entry* const entry, FindLocked(key));
  const auto is_of_shadow = [&](const Use& use) { return use.arena == entry->alternate.get(); };
  if (std::ranges::any_of(entry->uses, is_of_shadow)) {
    return absl::FailedPreconditionError(absl::StrCat(NameOf(key),
                                                      ": expected a shadow without leases, found ",
                                                      UsersOf(*entry, entry->alternate.get())));
  }
  entry->alternate = nullptr;
  return absl::OkStatus();
}

std::vector<StorageStatus> StorageTable::List() const {
  std::vector<StorageStatus> list;
  {
    MutexLock lock(mutex_);
    for (const auto& [key, entry] : entries_) {
      if (!HasFailed(*entry.current)) list.push_back(StatusOf(key, entry));
    }
  }
  std::ranges::sort(list, {}, &StorageStatus::key);
  return list;
}

StorageBytes StorageTable::Bytes() const {
  StorageBytes bytes;
  MutexLock lock(mutex_);
  for (const auto& [key, entry] : entries_) {
    if (!entry.current->status().ok() || IsOfUser(*entry.current)) continue;
    const Use* const writer = WriterOf(entry);
    const bool in_place = writer != nullptr && writer->arena == entry.current.get();
    const bool in_shadow = writer != nullptr && !in_place;
    (in_place ? bytes.receiving : bytes.resident) += std::ssize(entry.current->bytes());
    (in_shadow ? bytes.receiving : bytes.shadows) += ShadowBytesOf(entry);
  }
  return bytes;
}

absl::StatusOr<StorageStatus> StorageTable::Status(const StorageKey& key) const {
  ASSIGN_OR_RETURN(Opened opened, Open(key));
  return std::move(opened.status);
}

absl::StatusOr<StorageTable::Opened> StorageTable::Open(const StorageKey& key) const {
  MutexLock lock(mutex_);
  const auto found = entries_.find(key);
  if (found == entries_.end()) return NotThere(key);
  if (HasFailed(*found->second.current)) return NotThere(key, *found->second.current);
  if (IsLost(*found->second.current)) return Lost(key, *found->second.current);
  return Opened{.arena = found->second.current, .status = StatusOf(key, found->second)};
}

absl::StatusOr<StorageTable::Lease> StorageTable::LeaseForReading(const StorageKey& key,
                                                                  int64_t bytes,
                                                                  absl::string_view user) {
  MutexLock lock(mutex_);
  ASSIGN_OR_RETURN(Entry * entry, FindLocked(key));
  if (entry->provisional) {
    return absl::FailedPreconditionError(
        absl::StrCat(NameOf(key), " has nothing to read yet: it is made by ", UsersOf(*entry)));
  }
  if (entry->state == StorageState::kDirty) {
    return absl::FailedPreconditionError(
        absl::StrCat(NameOf(key), " is DIRTY: it was received in place and not committed"));
  }
  const int64_t size = std::ssize(entry->current->bytes());
  if (size != bytes) return OtherSize(key, bytes, size);
  RETURN_IF_ERROR(CheckSharersLocked(key, *entry, /*writes=*/false));
  ASSIGN_OR_RETURN(const uint64_t at_rest, UserAtRest(*entry));
  entry->uses.push_back({.user = std::string(user), .arena = entry->current.get()});
  Lease lease(*this, key, entry->current, std::prev(entry->uses.end()));
  lease.sequence_ = entry->sequence;
  lease.user_at_rest_ = at_rest;
  return lease;
}

absl::StatusOr<StorageTable::Lease> StorageTable::LeaseForWriting(const StorageKey& key,
                                                                  int64_t bytes,
                                                                  const Writing& how) {
  MutexLock lock(mutex_);
  ASSIGN_OR_RETURN(Entry * entry, FindOrMakeLocked(key, bytes, how.create));
  absl::StatusOr<std::shared_ptr<Arena>> arena = ArenaForWriting(key, bytes, *entry, how.shadow);
  if (!arena.ok()) {
    DropIfProvisionalLocked(key);
    return arena.status();
  }
  RETURN_IF_ERROR(CheckSharersLocked(key, *entry, /*writes=*/true));
  uint64_t at_rest = 0;
  if (!how.shadow) {
    ASSIGN_OR_RETURN(at_rest, UserAtRest(*entry));
  }
  entry->uses.push_back({.user = how.user, .arena = arena->get(), .writes = true});
  Lease lease(*this, key, *std::move(arena), std::prev(entry->uses.end()));
  // Dirty from now on, so that no reader gets half of what is written; the lease puts the state
  // back if nothing was.
  if (!how.shadow) {
    lease.state_unwritten_ = std::exchange(entry->state, StorageState::kDirty);
    lease.sequence_ = entry->sequence;
    lease.user_at_rest_ = at_rest;
  }
  return lease;
}

absl::Status StorageTable::CheckSharersLocked(const StorageKey& key, const Entry& entry,
                                              bool writes) const {
  if (entry.extents == nullptr) return absl::OkStatus();
  for (const auto& [other_key, other] : entries_) {
    if (&other == &entry || other.extents == nullptr) continue;
    const bool is_dirty = other.state == StorageState::kDirty;
    const bool is_in_the_way = writes ? !other.uses.empty() : is_dirty;
    if (!is_in_the_way || !entry.extents->Overlaps(*other.extents)) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        NameOf(key), " shares bytes with ", NameOf(other_key),
        ": expected no leases of that, found ", other.uses.empty() ? "it DIRTY" : UsersOf(other)));
  }
  return absl::OkStatus();
}

absl::StatusOr<StorageTable::Entry*> StorageTable::FindOrMakeLocked(const StorageKey& key,
                                                                    int64_t bytes, bool create) {
  absl::StatusOr<Entry*> found = FindLocked(key);
  // One that could not be made stays while it has leases.
  if (!create || !absl::IsNotFound(found.status()) || entries_.contains(key)) return found;
  ASSIGN_OR_RETURN(std::shared_ptr<Arena> arena, make_arena_(key, ByteCount(bytes)));
  Entry& entry = entries_[key];
  entry.current = std::move(arena);
  entry.provisional = true;
  return &entry;
}

absl::StatusOr<std::shared_ptr<Arena>> StorageTable::ArenaForWriting(const StorageKey& key,
                                                                     int64_t bytes, Entry& entry,
                                                                     bool shadow) {
  if (const Use* const writer = WriterOf(entry)) {
    return absl::AbortedError(absl::StrCat(NameOf(key), " is being written by ", writer->user));
  }
  const int64_t size = std::ssize(entry.current->bytes());
  if (size != bytes) return OtherSize(key, bytes, size);
  if (!shadow) {
    if (entry.uses.empty()) return entry.current;
    return absl::FailedPreconditionError(absl::StrCat(
        NameOf(key), ": expected no readers before writing in place, found ", UsersOf(entry)));
  }
  if (IsOfUser(*entry.current) || entry.current->is_borrowed()) {
    return absl::FailedPreconditionError(absl::StrCat(
        NameOf(key), " is memory of a user process: expected an operation in place, found shadow"));
  }
  // A shadow that readers from before the last flip still hold is not ours to write.
  if (entry.alternate == nullptr || entry.alternate.use_count() > 1 ||
      !entry.alternate->status().ok()) {
    ASSIGN_OR_RETURN(entry.alternate, make_arena_(key, ByteCount(bytes)));
  }
  return entry.alternate;
}

absl::Status StorageTable::Commit(Lease lease) {
  if (lease.table_ != this || !lease.use_->writes) {
    return absl::FailedPreconditionError(
        absl::StrCat(NameOf(lease.key_), ": expected a lease for writing to commit"));
  }
  RETURN_IF_ERROR(lease.CheckUndisturbed());
  MutexLock lock(mutex_);
  Entry& entry = entries_.at(lease.key_);
  // What readers had until now is the next shadow.
  if (lease.arena_ == entry.alternate) std::swap(entry.current, entry.alternate);
  entry.state = StorageState::kReady;
  NextGeneration(entry);
  entry.provisional = false;
  entry.uses.erase(lease.use_);
  // It has ended here: its destructor must not release it.
  lease.table_ = nullptr;
  return absl::OkStatus();
}

void StorageTable::NextGeneration(Entry& entry) {
  ++entry.generation;
  if (entry.sequence != nullptr) entry.sequence->Publish(entry.generation);
}

void StorageTable::Release(const Lease& lease) {
  MutexLock lock(mutex_);
  Entry& entry = entries_.at(lease.key_);
  if (lease.use_->writes) entry.state = lease.state_unwritten_.value_or(entry.state);
  entry.uses.erase(lease.use_);
  DropIfProvisionalLocked(lease.key_);
}

void StorageTable::DropIfProvisionalLocked(const StorageKey& key) {
  const auto found = entries_.find(key);
  if (found->second.provisional && found->second.uses.empty()) entries_.erase(found);
}

absl::StatusOr<uint64_t> StorageTable::UserAtRest(const Entry& entry) {
  if (entry.sequence == nullptr) return 0;
  return entry.sequence->AtRest();
}

const StorageTable::Use* StorageTable::WriterOf(const Entry& entry) {
  const auto found = std::ranges::find(entry.uses, true, &Use::writes);
  return found == entry.uses.end() ? nullptr : &*found;
}

std::string StorageTable::UsersOf(const Entry& entry, const Arena* arena) {
  std::vector<std::string> users;
  for (const Use& use : entry.uses) {
    if (arena != nullptr && use.arena != arena) continue;
    users.push_back(absl::StrCat(use.user, use.writes ? " (writes)" : " (reads)"));
  }
  return absl::StrJoin(users, ", ");
}

int64_t StorageTable::ShadowBytesOf(const Entry& entry) {
  if (entry.alternate == nullptr || !entry.alternate->status().ok()) return 0;
  return std::ssize(entry.alternate->bytes());
}

StorageStatus StorageTable::StatusOf(const StorageKey& key, const Entry& entry) {
  return {.key = key,
          .bytes = std::ssize(entry.current->bytes()),
          .shadow_bytes = ShadowBytesOf(entry),
          .generation = entry.generation,
          .state = IsLost(*entry.current) ? StorageState::kLost : entry.state,
          .readers = static_cast<int32_t>(std::ranges::count(entry.uses, false, &Use::writes)),
          .writing = WriterOf(entry) != nullptr,
          .gpu = entry.current->device_memory() == nullptr ? ""
                                                           : entry.current->device_memory()->gpu()};
}

absl::StatusOr<StorageTable::Entry*> StorageTable::FindLocked(const StorageKey& key) {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return NotThere(key);
  if (IsLost(*found->second.current)) return Lost(key, *found->second.current);
  if (!HasFailed(*found->second.current)) return &found->second;
  absl::Status status = NotThere(key, *found->second.current);
  MakeWayLocked(key);
  return status;
}

void StorageTable::MakeWayLocked(const StorageKey& key) {
  const auto found = entries_.find(key);
  if (found == entries_.end() || found->second.current->status().ok()) return;
  // Leases find their entry until they end.
  if (found->second.uses.empty()) entries_.erase(found);
}

}  // namespace crossmesh
