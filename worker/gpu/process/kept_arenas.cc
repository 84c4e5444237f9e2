#include "worker/gpu/process/kept_arenas.h"

#include "common/base/log.h"
#include "worker/gpu/process/device_file.h"

#include <cerrno>
#include <utility>

#include <absl/strings/str_cat.h>
#include <fcntl.h>

namespace crossmesh {

KeptArenas::KeptArenas(std::string gpu, std::string system_root)
    : gpu_(std::move(gpu)), system_root_(std::move(system_root)) {}

void KeptArenas::Keep(ArenaId arena, Kept kept, const std::string& pci_address) {
  arenas_[arena] = std::move(kept);
  HoldDevice(pci_address);
}

void KeptArenas::HoldDevice(const std::string& pci_address) {
  if (device_file_.valid()) return;
  absl::StatusOr<UniqueFd> file = OpenDeviceFile(system_root_, pci_address);
  if (file.ok()) {
    device_file_ = *std::move(file);
  } else if (!std::exchange(is_refusal_told_, true)) {
    LogWarning("gpu_device_file_not_open",
               {{"gpu", gpu_},
                {"cause", file.status().ToString()},
                {"effect", "without nvidia-persistenced memory goes with the GPU's process"}});
  }
}

bool KeptArenas::Forget(ArenaId arena) {
  const bool was_there = arenas_.erase(arena) > 0;
  if (arenas_.empty()) ReleaseDevice();
  return was_there;
}

absl::StatusOr<UniqueFd> KeptArenas::Export(ArenaId arena) const {
  const auto found = arenas_.find(arena);
  if (found == arenas_.end()) {
    return absl::NotFoundError(
        absl::StrCat("arena ", arena.value(), " of GPU ", gpu_, " is not there"));
  }
  if (!found->second.ipc_handle.empty()) return UniqueFd();
  UniqueFd copy(fcntl(found->second.descriptor.get(), F_DUPFD_CLOEXEC, 0));
  if (!copy.valid()) return absl::ErrnoToStatus(errno, "duplicating a descriptor");
  return copy;
}

KeptArenas::Import KeptArenas::OnImported(ArenaId arena, const absl::Status& imported) {
  const auto kept = arenas_.find(arena);
  if (kept == arenas_.end()) return Import::kDone;  // released meanwhile
  if (imported.ok()) {
    kept->second.failed_imports = 0;
    return Import::kDone;
  }
  if (absl::IsUnavailable(imported) || absl::IsResourceExhausted(imported)) {
    if (!suspect_.has_value()) suspect_ = arena;
    return Import::kMayBeDone;
  }
  Forget(arena);
  return Import::kLost;
}

std::optional<ArenaId> KeptArenas::JudgeSuspect() {
  const std::optional<ArenaId> suspect = std::exchange(suspect_, std::nullopt);
  if (!suspect.has_value()) return std::nullopt;
  const auto kept = arenas_.find(*suspect);
  if (kept == arenas_.end() || ++kept->second.failed_imports < kImportsMax) return std::nullopt;
  Forget(*suspect);
  return suspect;
}

}  // namespace crossmesh
