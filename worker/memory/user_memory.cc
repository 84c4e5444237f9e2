#include "worker/memory/user_memory.h"

#include "common/base/sealed_file.h"
#include "common/base/status_macros.h"
#include "common/memory_protocol/piece_list.h"
#include "worker/memory/bound_extents.h"
#include "worker/memory/storage_errors.h"

#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
absl::StatusOr<StorageTable::Opened> UserMemory::Lend(const StorageKey& key, Loan loan) {
  const bool is_by_handle = !loan.memory.ipc_handle.empty();
  if (loan.memory.descriptor.valid() == is_by_handle) {
    return absl::InvalidArgumentError(absl::StrCat(
        NameOf(key), ": expected either the descriptor of an allocation or an IPC handle, found ",
        is_by_handle ? "both" : "none"));
  }
  absl::StatusOr<StorageTable::Opened> before = absl::NotFoundError("none");
  if (loan.generation != 0) before = FindAllocation(key);
  ASSIGN_OR_RETURN(std::shared_ptr<Arena> arena,
                   maker_.lend(key, loan.bytes, std::move(loan.memory)));
  ASSIGN_OR_RETURN(
      StorageTable::Opened opened,
      storages_.Bind(key, arena, loan.generation,
                     std::make_shared<const BoundExtents>(BoundExtents::OfLoan(*arena))));
  if (before.ok()) {
    EndLoan(key, before->arena,
            absl::StrCat("lent anew, as generation ", opened.status.generation));
  }
  std::erase_if(loans_, [](const auto& entry) { return entry.second.arena.expired(); });
  if (is_by_handle) loans_.emplace(loan.lender, LentByHandle{.key = key, .arena = opened.arena});
  return opened;
}

void UserMemory::EndLoansOf(int lender) {
  const auto [begin, end] = loans_.equal_range(lender);
  for (auto loan = begin; loan != end; ++loan) {
    const std::shared_ptr<Arena> arena = loan->second.arena.lock();
    if (arena != nullptr) EndLoan(loan->second.key, arena, "its lender has hung up");
  }
  loans_.erase(begin, end);
}

void UserMemory::EndLoan(const StorageKey& key, const std::shared_ptr<Arena>& arena,
                         absl::string_view why) const {
  if (arena->device_memory()->kind() != DeviceMemory::Kind::kLentByHandle) return;
  maker_.end(key, arena,
             absl::UnavailableError(absl::StrCat("allocation \"", key.name, "\": ", why)));
}

absl::StatusOr<StorageTable::Opened> UserMemory::Bind(const StorageKey& key,
                                                      const Binding& binding) {
  if (!binding.list.valid()) {
    return absl::InvalidArgumentError(absl::StrCat(
        NameOf(key), ": expected a sealed file that lists pieces, found no descriptor"));
  }
  ASSIGN_OR_RETURN(const std::string text,
                   ReadSealedFile(binding.list.get(), PieceList::kFileBytesMax));
  ASSIGN_OR_RETURN(const PieceList list, DecodePieceList(text));
  std::vector<std::shared_ptr<Arena>> allocations;
  std::vector<int64_t> allocation_bytes;
  for (size_t i = 0; i < list.allocations.size(); ++i) {
    const StorageKey allocation = {.name = list.allocations[i], .device = key.device};
    ASSIGN_OR_RETURN(const StorageTable::Opened opened, FindAllocation(allocation));
    if (!list.generations.empty() && list.generations[i] != opened.status.generation) {
      return absl::AbortedError(absl::StrCat(NameOf(allocation), ": expected generation ",
                                             list.generations[i], ", found ",
                                             opened.status.generation));
    }
    allocations.push_back(opened.arena);
    allocation_bytes.push_back(opened.status.bytes);
  }
  RETURN_IF_ERROR(CheckPieces(list, binding.bytes.value(), allocation_bytes));
  std::vector<BoundPiece> pieces;
  for (const MemoryPiece& piece : list.pieces) {
    pieces.push_back({.offset = piece.offset,
                      .bytes = piece.bytes,
                      .allocation = allocations[piece.allocation],
                      .allocation_offset = piece.allocation_offset});
  }
  auto extents = std::make_shared<const BoundExtents>(BoundExtents::OfPieces(pieces));
  ASSIGN_OR_RETURN(std::shared_ptr<Arena> arena,
                   maker_.bind(key, binding.bytes, std::move(pieces)));
  return storages_.Bind(key, std::move(arena), binding.generation, std::move(extents));
}

absl::StatusOr<StorageTable::Opened> UserMemory::FindAllocation(const StorageKey& key) const {
  ASSIGN_OR_RETURN(StorageTable::Opened opened, storages_.Open(key));
  const std::shared_ptr<DeviceMemory>& memory = opened.arena->device_memory();
  if (memory != nullptr && memory->is_lent()) return opened;
  return absl::FailedPreconditionError(
      absl::StrCat(NameOf(key), ": expected an allocation that was lent, found another storage"));
}

}  // namespace crossmesh
