#include "worker/gpu/loop/gpu_arenas.h"

#include "common/base/status_macros.h"
#include "worker/gpu/protocol/gpu_message.h"

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

void GpuArenas::CreateArena(const v1::GpuRequest::CreateArena& request, Created done) {
  const auto begin = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const ArenaId arena, ParseArena(request.arena()));
    RETURN_IF_ERROR(CheckNumber("create_arena.size_bytes", request.size_bytes(), 0));
    RETURN_IF_ERROR(CheckNew(arena));
    ASSIGN_OR_RETURN(Filling filling, Fill(ByteCount(request.size_bytes())));
    // Nothing fails from here on: an error would still need it.
    filling.done = std::move(done);
    filling_.emplace(arena, std::move(filling));
    return absl::OkStatus();
  };
  if (const absl::Status begun = begin(); !begun.ok()) done(begun);
}

absl::StatusOr<GpuArenas::Filling> GpuArenas::Fill(ByteCount bytes) {
  Filling filling;
  // Before the memory, which may not go while it is being filled: without an event nothing would
  // tell of the end of that.
  ASSIGN_OR_RETURN(filling.filled, GpuEvent::Create(gpu_));
  ASSIGN_OR_RETURN(filling.memory, GpuMemory::Create(gpu_, bytes, {.zeroed_on = stream_.get()}));
  RETURN_IF_ERROR(filling.filled->Record(*stream_));
  return filling;
}

absl::Status GpuArenas::Import(const v1::GpuRequest::ImportArena& request,
                               const UniqueFd& descriptor) {
  ASSIGN_OR_RETURN(const ArenaId arena, ParseArena(request.arena()));
  RETURN_IF_ERROR(CheckNumber("import_arena.size_bytes", request.size_bytes(), 0));
  RETURN_IF_ERROR(CheckNew(arena));
  if (descriptor.valid() != request.ipc_handle().empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "arena ", arena.value(), ": expected either a descriptor or an IPC handle, found ",
        descriptor.valid() ? "both" : "none"));
  }
  const ByteCount bytes(request.size_bytes());
  ASSIGN_OR_RETURN(std::shared_ptr<const GpuMemory> memory,
                   descriptor.valid() ? GpuMemory::Import(gpu_, descriptor.get(), bytes)
                                      : GpuMemory::Open(gpu_, request.ipc_handle(), bytes));
  arenas_.emplace(arena, std::move(memory));
  return absl::OkStatus();
}

absl::Status GpuArenas::Release(ArenaId arena) {
  if (arenas_.erase(arena) > 0) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("arena ", arena.value(), " is not here"));
}

absl::Status GpuArenas::Poll() {
  for (auto it = filling_.begin(); it != filling_.end();) {
    auto& [arena, filling] = *it;
    ASSIGN_OR_RETURN(const bool is_filled, filling.filled->IsDone());
    if (!is_filled) {
      ++it;
      continue;
    }
    ASSIGN_OR_RETURN(UniqueFd descriptor, filling.memory->ExportFd());
    arenas_[arena] = std::move(filling.memory);
    Created done = std::move(filling.done);
    it = filling_.erase(it);
    done(std::move(descriptor));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const GpuMemory>> GpuArenas::Find(ArenaId arena) const {
  const auto found = arenas_.find(arena);
  if (found != arenas_.end()) return found->second;
  return absl::NotFoundError(absl::StrCat("arena ", arena.value(), " is not here"));
}

}  // namespace crossmesh
