#include "worker/gpu/devices/storage_arenas.h"

#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"

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
  if (found == arenas_.end()) return;
  Entry& entry = found->second;
  LogError("gpu_memory_lost", {{"gpu", gpu_},
                               {"storage", entry.storage},
                               {"bytes", entry.bytes.value()},
                               {"cause", why.ToString()}});
  entry.arena = ArenaId();
  entry.memory->Lose(why);
}

absl::StatusOr<std::shared_ptr<Arena>> StorageArenas::Make(absl::string_view name,
                                                           ByteCount bytes) {
  {
    MutexLock lock(shared_->mutex);
    RETURN_IF_ERROR(shared_->available);
  }
  // The range of addresses is there at once, the memory later: its caller waits for no GPU.
  auto memory = std::make_shared<DeviceMemory>(gpu_);
  ASSIGN_OR_RETURN(std::shared_ptr<Arena> arena, Arena::Reserve(name, bytes, memory));
  const std::byte* const first = arena->bytes().data();
  Entry entry = {.storage = std::string(name), .memory = std::move(memory), .bytes = bytes};
  const bool is_posted = loop_.Post(
      [this, first, entry = std::move(entry)]() mutable { MakeOnLoop(first, std::move(entry)); });
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
      return Found{.memory = entry.memory,
                   .place = {.arena = entry.arena, .offset = offset},
                   .bytes = entry.bytes};
    }
  }
  return absl::FailedPreconditionError(
      absl::StrCat("expected memory of GPU ", gpu_, ", found memory that was lent"));
}

}  // namespace crossmesh
