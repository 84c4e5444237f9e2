#include "worker/memory/user_memory.h"

#include "common/base/sealed_file.h"
#include "common/base/status_macros.h"
#include "common/memory_protocol/piece_list.h"

#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

absl::Status NeedDescriptor(const StorageKey& key, const UniqueFd& descriptor,
                            absl::string_view expected) {
  if (descriptor.valid()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("storage \"", key.name, "\" of device ",
                                                 ToString(key.device), ": expected ", expected,
                                                 " with the request, found no descriptor"));
}

}  // namespace

absl::StatusOr<StorageTable::Opened> UserMemory::Lend(const StorageKey& key, ByteCount bytes,
                                                      UniqueFd allocation) {
  RETURN_IF_ERROR(NeedDescriptor(key, allocation, "the descriptor of an allocation"));
  ASSIGN_OR_RETURN(std::shared_ptr<Arena> arena, maker_.lend(key, bytes, std::move(allocation)));
  return storages_.Bind(key, std::move(arena), /*generation=*/0);
}

absl::StatusOr<StorageTable::Opened> UserMemory::Bind(const StorageKey& key,
                                                      const Binding& binding) {
  RETURN_IF_ERROR(NeedDescriptor(key, binding.list, "a sealed file that lists pieces"));
  ASSIGN_OR_RETURN(const std::string text,
                   ReadSealedFile(binding.list.get(), PieceList::kFileBytesMax));
  ASSIGN_OR_RETURN(const PieceList list, DecodePieceList(text));
  std::vector<std::shared_ptr<Arena>> allocations;
  std::vector<int64_t> allocation_bytes;
  for (const std::string& name : list.allocations) {
    ASSIGN_OR_RETURN(allocations.emplace_back(),
                     FindAllocation({.name = name, .device = key.device}));
    allocation_bytes.push_back(std::ssize(allocations.back()->bytes()));
  }
  RETURN_IF_ERROR(CheckPieces(list, binding.bytes.value(), allocation_bytes));
  std::vector<BoundPiece> pieces;
  for (const MemoryPiece& piece : list.pieces) {
    pieces.push_back({.offset = piece.offset,
                      .bytes = piece.bytes,
                      .allocation = allocations[piece.allocation],
                      .allocation_offset = piece.allocation_offset});
  }
  ASSIGN_OR_RETURN(std::shared_ptr<Arena> arena,
                   maker_.bind(key, binding.bytes, std::move(pieces)));
  return storages_.Bind(key, std::move(arena), binding.generation);
}

absl::StatusOr<std::shared_ptr<Arena>> UserMemory::FindAllocation(const StorageKey& key) const {
  ASSIGN_OR_RETURN(StorageTable::Opened opened, storages_.Open(key));
  const std::shared_ptr<DeviceMemory>& memory = opened.arena->device_memory();
  if (memory != nullptr && memory->kind() == DeviceMemory::Kind::kLent) return opened.arena;
  return absl::FailedPreconditionError(
      absl::StrCat("storage \"", key.name, "\" of device ", ToString(key.device),
                   ": expected an allocation that was lent, found another storage"));
}

}  // namespace crossmesh
