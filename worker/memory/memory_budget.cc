#include "worker/memory/memory_budget.h"

#include "common/base/memory_limit.h"
#include "common/base/status_macros.h"
#include "worker/memory/memory_charge.h"

#include <algorithm>
#include <utility>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {

namespace {

// Of the address space, for heaps and stacks: a process that finds none for them ends.
constexpr int64_t kAddressSpaceKept = int64_t{256} << 20;

absl::Status CheckAddressSpace(absl::string_view name, int64_t wanted) {
  const int64_t room = std::max<int64_t>(0, AddressSpaceLeft() - kAddressSpaceKept);
  if (wanted <= room) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      name, ": expected at most ", room,
      " bytes, which the limit of address space (ulimit -v) leaves, found ", wanted, " wanted"));
}

}  // namespace

ByteCount MemoryMaxByDefault() { return ByteCount(MemoryLimit() / 10 * 9); }

MemoryBudget::MemoryBudget(ByteCount bytes_max, ByteCount used_bytes)
    : bytes_max_(bytes_max.value()),
      used_bytes_(std::make_shared<std::atomic<int64_t>>(used_bytes.value())) {}

absl::StatusOr<MemoryBudget::Share> MemoryBudget::Take(absl::string_view name, ByteCount bytes) {
  return Charge(name, bytes);
}

absl::StatusOr<std::shared_ptr<MemoryCharge>> MemoryBudget::Charge(absl::string_view name,
                                                                   ByteCount bytes) {
  const int64_t wanted = bytes.value();
  RETURN_IF_ERROR(CheckAddressSpace(name, wanted));
  int64_t used = *used_bytes_;
  do {
    if (wanted > bytes_max_ - used) {
      return absl::ResourceExhaustedError(absl::StrCat(
          name, ": expected at most ", bytes_max_,
          " bytes of host memory for all storages, shadows, buffers and plans of this worker "
          "(--memory-max), found ",
          used, " in use and ", wanted, " wanted"));
    }
  } while (!used_bytes_->compare_exchange_weak(used, used + wanted));
  return std::make_shared<MemoryCharge>(used_bytes_, wanted);
}

absl::StatusOr<std::shared_ptr<Arena>> MemoryBudget::MakeArena(absl::string_view name,
                                                               ByteCount bytes,
                                                               Arena::Pages pages) {
  ASSIGN_OR_RETURN(std::shared_ptr<MemoryCharge> charge, Charge(name, bytes));
  ASSIGN_OR_RETURN(std::shared_ptr<Arena> arena, Arena::Create(name, bytes, pages));
  arena->SetCharge(std::move(charge));
  return arena;
}

}  // namespace crossmesh
