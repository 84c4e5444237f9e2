#include "worker/gpu/devices/storage_arenas.h"

#include "common/base/check.h"
#include "common/base/error_place.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "worker/memory/lent_allocation.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {

StorageArenas::StorageArenas(EventLoop& loop, std::string gpu, GpuProcess& process)
    : loop_(loop), gpu_(std::move(gpu)), process_(process) {
  MutexLock lock(shared_->mutex);
  shared_->owner = this;
  shared_->available =
      absl::UnavailableError(absl::StrCat("GPU ", gpu_, " is not up: it has not begun"));
}

StorageArenas::~StorageArenas() {
  MutexLock lock(shared_->mutex);
  shared_->owner = nullptr;
}

void StorageArenas::Close() {
  SetAvailable(Stopping());
  for (auto& [first, entry] : arenas_) {
    const absl::StatusOr<bool> is_made = entry.memory->is_made();
    if (is_made.ok() && !*is_made) entry.memory->Finish(Stopping());
  }
}

absl::Status StorageArenas::Stopping() const {
  return absl::UnavailableError(absl::StrCat("GPU ", gpu_, ": the worker stops"));
}

void StorageArenas::SetAvailable(const absl::Status& status) {
  MutexLock lock(shared_->mutex);
  shared_->available = status;
}

void StorageArenas::MarkLost(ArenaId arena, const absl::Status& why) {
  const auto found =
      std::ranges::find_if(arenas_, [&](const auto& entry) { return entry.second.arena == arena; });
  if (found != arenas_.end()) Lose(found->second, why);
}

void StorageArenas::EndLoan(std::shared_ptr<Arena> lent, const absl::Status& why) {
  // Its range stays until then.
  loop_.Post([this, lent = std::move(lent), why] {
    const auto found = arenas_.find(lent->bytes().data());
    CHECK(found != arenas_.end());
    process_.ReleaseArena(found->second.arena);
    Lose(found->second, why);
  });
}

void StorageArenas::Lose(Entry& entry, const absl::Status& why) {
  LogError("gpu_memory_lost", {{"gpu", gpu_},
                               {"storage", entry.storage},
                               {"bytes", entry.bytes.value()},
                               {"cause", why.ToString()}});
  entry.arena = ArenaId();
  entry.memory->Lose(why);
  const auto is_of_it = [&](const BoundPiece& piece) {
    return piece.allocation->device_memory() == entry.memory;
  };
  for (auto& [first, bound] : arenas_) {
    if (std::ranges::any_of(bound.pieces, is_of_it)) bound.memory->Lose(why);
  }
}

absl::StatusOr<std::shared_ptr<Arena>> StorageArenas::Make(absl::string_view name,
                                                           ByteCount bytes) {
  return Reserve(
      {.storage = std::string(name),
       .memory = std::make_shared<DeviceMemory>(gpu_),
       .bytes = bytes},
      [this](const std::byte* first, Entry entry) { MakeOnLoop(first, std::move(entry)); });
}

absl::StatusOr<std::shared_ptr<Arena>> StorageArenas::Lend(absl::string_view name, ByteCount bytes,
                                                           LentAllocation allocation) {
  const DeviceMemory::Kind kind =
      allocation.ipc_handle.empty() ? DeviceMemory::Kind::kLent : DeviceMemory::Kind::kLentByHandle;
  auto memory = std::make_shared<DeviceMemory>(gpu_, kind, allocation.ipc_handle);
  return Reserve(
      {.storage = std::string(name), .memory = std::move(memory), .bytes = bytes},
      [this, allocation = std::move(allocation)](const std::byte* first, Entry entry) mutable {
        LendOnLoop(first, std::move(entry), std::move(allocation));
      });
}

absl::StatusOr<std::shared_ptr<Arena>> StorageArenas::Bind(absl::string_view name, ByteCount bytes,
                                                           std::vector<BoundPiece> pieces) {
  return Reserve(
      {.storage = std::string(name),
       .memory = std::make_shared<DeviceMemory>(gpu_, DeviceMemory::Kind::kBound),
       .bytes = bytes,
       .pieces = std::move(pieces)},
      [this](const std::byte* first, Entry entry) { BindOnLoop(first, std::move(entry)); });
}

absl::StatusOr<std::shared_ptr<Arena>> StorageArenas::Reserve(Entry entry, Begin begin) {
  {
    MutexLock lock(shared_->mutex);
    RETURN_IF_ERROR(shared_->available);
  }
  // The range of addresses is there at once, the memory later: its caller waits for no GPU.
  ASSIGN_OR_RETURN(std::shared_ptr<Arena> arena,
                   Arena::Reserve(entry.storage, entry.bytes, entry.memory));
  const std::byte* const first = arena->bytes().data();
  const bool is_posted =
      loop_.Post([first, entry = std::move(entry), begin = std::move(begin)]() mutable {
        begin(first, std::move(entry));
      });
  if (!is_posted) return Stopping();
  // The last user may be on any thread, but only the loop may release memory of the process.
  Arena* const in_use = arena.get();
  return std::shared_ptr<Arena>(
      in_use, [shared = shared_, arena = std::move(arena)](Arena* /*in_use*/) mutable {
        PostRelease(*shared, std::move(arena));
      });
}

void StorageArenas::MakeOnLoop(const std::byte* first, Entry entry) {
  process_.CreateArena(entry.bytes,
                       [this, first, memory = entry.memory](absl::StatusOr<ArenaId> made) {
                         OnMade(first, *memory, std::move(made));
                       });
  arenas_[first] = std::move(entry);
}

void StorageArenas::LendOnLoop(const std::byte* first, Entry entry, LentAllocation allocation) {
  process_.ImportArena(entry.bytes, std::move(allocation),
                       [this, first, memory = entry.memory, bytes = entry.bytes,
                        name = entry.storage](absl::StatusOr<ArenaId> made) {
                         OnMade(first, *memory,
                                At(absl::StrCat("allocation \"", name, "\": expected ",
                                                bytes.value(), " bytes of GPU ", gpu_, ", found"),
                                   std::move(made)));
                       });
  arenas_[first] = std::move(entry);
}

void StorageArenas::BindOnLoop(const std::byte* first, Entry entry) {
  absl::Status made;
  for (const BoundPiece& piece : entry.pieces) made.Update(piece.allocation->status());
  const std::shared_ptr<DeviceMemory> memory = entry.memory;
  arenas_[first] = std::move(entry);
  memory->Finish(made.ok() ? DeviceMemory::Made(UniqueFd()) : DeviceMemory::Made(made));
}

void StorageArenas::OnMade(const std::byte* first, DeviceMemory& memory,
                           absl::StatusOr<ArenaId> made) {
  DeviceMemory::Made descriptor =
      made.ok() ? process_.ExportArena(*made) : DeviceMemory::Made(made.status());
  // The range may be gone since then, and another one may have its addresses.
  const auto found = arenas_.find(first);
  const bool is_in_use = found != arenas_.end() && found->second.memory.get() == &memory;
  if (made.ok() && is_in_use && descriptor.ok()) {
    found->second.arena = *made;
  } else if (made.ok()) {
    process_.ReleaseArena(*made);
  }
  memory.Finish(std::move(descriptor));
}

void StorageArenas::PostRelease(Shared& shared, std::shared_ptr<Arena> arena) {
  // Held while posting, so that the owner cannot go in between. Its tasks never run after it: by
  // then the loop has stopped.
  MutexLock lock(shared.mutex);
  if (shared.owner == nullptr) return;
  // Its addresses are its own until the task has run.
  shared.owner->loop_.Post(
      [owner = shared.owner, arena = std::move(arena)] { owner->Release(arena->bytes().data()); });
}

void StorageArenas::Release(const std::byte* first) {
  const auto found = arenas_.find(first);
  CHECK(found != arenas_.end());
  if (found->second.arena != ArenaId()) process_.ReleaseArena(found->second.arena);
  arenas_.erase(found);
}

absl::StatusOr<StorageArenas::Found> StorageArenas::Find(const std::byte* address) const {
  const auto after = arenas_.upper_bound(address);
  if (after != arenas_.begin()) {
    const auto& [first, entry] = *std::prev(after);
    const int64_t offset = address - first;
    // A tile without a byte may lie after all others.
    if (offset <= entry.bytes.value()) {
      if (entry.memory->kind() == DeviceMemory::Kind::kBound) return FindInPieces(entry, offset);
      return Found{.memory = entry.memory,
                   .place = {.arena = entry.arena, .offset = offset},
                   .first = first,
                   .bytes = entry.bytes,
                   .left = ByteCount(entry.bytes.value() - offset)};
    }
  }
  return absl::FailedPreconditionError(
      absl::StrCat("expected memory of GPU ", gpu_, ", found memory of another kind"));
}

absl::StatusOr<StorageArenas::Found> StorageArenas::FindInPieces(const Entry& entry,
                                                                 int64_t offset) const {
  const auto after = std::ranges::upper_bound(entry.pieces, offset, {}, &BoundPiece::offset);
  if (after == entry.pieces.begin() || std::prev(after)->end() <= offset) {
    return absl::FailedPreconditionError(absl::StrCat("storage \"", entry.storage,
                                                      "\": expected a piece bound to offset ",
                                                      offset, ", found none"));
  }
  const BoundPiece& piece = *std::prev(after);
  const int64_t in_piece = offset - piece.offset;
  ASSIGN_OR_RETURN(Found found,
                   Find(piece.allocation->bytes().data() + piece.allocation_offset + in_piece));
  found.left = ByteCount(piece.bytes - in_piece);
  return found;
}

absl::Status StorageArenas::CheckHolds(const Found& found, ByteCount tile) {
  if (tile.value() <= found.left.value()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("expected a piece that holds the ", tile.value(),
                   " bytes of a tile, found one with ", found.left.value(), " from there on"));
}

}  // namespace crossmesh
