#include "worker/gpu/loop/gpu_arenas.h"

#include "common/base/status_macros.h"

#include <utility>

#include <absl/memory/memory.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {

absl::StatusOr<std::unique_ptr<GpuArenas>> GpuArenas::Create(Gpu& gpu) {
  auto arenas = absl::WrapUnique(new GpuArenas(gpu));
  ASSIGN_OR_RETURN(arenas->stream_, GpuStream::Create(gpu));
  return arenas;
}

absl::Status GpuArenas::CheckNew(ArenaId arena) const {
  if (!arenas_.contains(arena) && !filling_.contains(arena)) return absl::OkStatus();
  return absl::AlreadyExistsError(absl::StrCat("arena ", arena.value(), " is here already"));
}

absl::Status GpuArenas::Begin(ArenaId arena, ByteCount bytes) {
  RETURN_IF_ERROR(CheckNew(arena));
  Filling filling;
  ASSIGN_OR_RETURN(filling.filled, GpuEvent::Create(gpu_));
  ASSIGN_OR_RETURN(filling.memory, GpuMemory::Create(gpu_, bytes, {.zeroed_on = stream_.get()}));
  RETURN_IF_ERROR(filling.filled->Record(*stream_));
  filling_.emplace(arena, std::move(filling));
  return absl::OkStatus();
}

absl::Status GpuArenas::Import(ArenaId arena, ByteCount bytes, int descriptor) {
  RETURN_IF_ERROR(CheckNew(arena));
  ASSIGN_OR_RETURN(std::shared_ptr<const GpuMemory> memory,
                   GpuMemory::Import(gpu_, descriptor, bytes));
  arenas_.emplace(arena, std::move(memory));
  return absl::OkStatus();
}

absl::Status GpuArenas::Release(ArenaId arena) {
  if (arenas_.erase(arena) > 0) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("arena ", arena.value(), " is not here"));
}

absl::StatusOr<std::vector<ArenaId>> GpuArenas::Poll() {
  std::vector<ArenaId> filled;
  for (auto it = filling_.begin(); it != filling_.end();) {
    auto& [arena, filling] = *it;
    ASSIGN_OR_RETURN(const bool is_filled, filling.filled->IsDone());
    if (!is_filled) {
      ++it;
      continue;
    }
    filled.push_back(arena);
    arenas_[arena] = std::move(filling.memory);
    it = filling_.erase(it);
  }
  return filled;
}

absl::StatusOr<std::shared_ptr<const GpuMemory>> GpuArenas::Find(ArenaId arena) const {
  const auto found = arenas_.find(arena);
  if (found != arenas_.end()) return found->second;
  return absl::NotFoundError(absl::StrCat("arena ", arena.value(), " is not here"));
}

}  // namespace crossmesh
