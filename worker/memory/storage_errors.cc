#include "worker/memory/storage_errors.h"

#include "worker/memory/device_memory.h"

#include <memory>

#include <absl/strings/str_cat.h>

namespace crossmesh {

std::string NameOf(const StorageKey& key) {
  return absl::StrCat("storage \"", key.name, "\" of device ", ToString(key.device));
}

absl::Status OtherSize(const StorageKey& key, int64_t expected, int64_t found) {
  return absl::FailedPreconditionError(
      absl::StrCat(NameOf(key), ": expected ", expected, " bytes, found ", found));
}

absl::Status NotThere(const StorageKey& key) {
  return absl::NotFoundError(absl::StrCat(NameOf(key), ": expected one, found none"));
}

absl::Status NotThere(const StorageKey& key, const Arena& failed) {
  return absl::NotFoundError(absl::StrCat(
      NameOf(key), ": expected one, found that it could not be made: ", failed.status().message()));
}

absl::Status LossOf(const Arena& arena) {
  const std::shared_ptr<DeviceMemory>& memory = arena.device_memory();
  return memory == nullptr ? absl::OkStatus() : memory->loss();
}

absl::Status Lost(const StorageKey& key, const Arena& lost) {
  return absl::FailedPreconditionError(
      absl::StrCat(NameOf(key), " is LOST: expected its ", lost.bytes().size(),
                   " bytes in the memory of GPU ", lost.device_memory()->gpu(),
                   ", found: ", LossOf(lost).message(), "; delete it, or create it again"));
}

}  // namespace crossmesh
