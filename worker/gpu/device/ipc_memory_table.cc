#include "worker/gpu/device/ipc_memory_table.h"

#include "common/base/check.h"
#include "common/base/status_macros.h"

#include <string>
#include <utility>

#include <absl/status/status.h>
#include <absl/strings/escaping.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

absl::Status NotThatGeneration(const IpcHandle& handle, uint64_t generation,
                               absl::string_view reason) {
  const absl::string_view bytes(reinterpret_cast<const char*>(handle.data()), handle.size());
  return absl::FailedPreconditionError(absl::StrCat("memory of another process, handle ",
                                                    absl::BytesToHexString(bytes), ", generation ",
                                                    generation, ": ", reason));
}

}  // namespace

absl::StatusOr<std::shared_ptr<const IpcMemory>> IpcMemoryTable::Open(const IpcHandle& handle,
                                                                      uint64_t generation) {
  Entry& entry = entries_[handle];
  if (generation < entry.generation) {
    return NotThatGeneration(handle, generation,
                             absl::StrCat("stale, expected ", entry.generation, " or later"));
  }
  entry.generation = generation;
  if (std::shared_ptr<const IpcMemory> memory = entry.memory.lock()) {
    if (entry.opened_generation == generation) return memory;
    return NotThatGeneration(
        handle, generation,
        absl::StrCat("generation ", entry.opened_generation, " is still in use here"));
  }
  ASSIGN_OR_RETURN(std::shared_ptr<const IpcMemory> memory, IpcMemory::Open(gpu_, handle));
  entry.memory = memory;
  entry.opened_generation = generation;
  return memory;
}

void IpcMemoryTable::Forget(const IpcHandle& handle) {
  const auto found = entries_.find(handle);
  if (found == entries_.end()) return;
  CHECK(found->second.memory.expired()) << "generation " << found->second.opened_generation;
  entries_.erase(found);
}

}  // namespace crossmesh
