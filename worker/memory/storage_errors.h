// What a table of storages refuses, in words. Each names the storage, what was expected and what
// was found.

#pragma once

#include "worker/memory/storage_table.h"

#include <cstdint>
#include <string>

#include <absl/status/status.h>

namespace crossmesh {

// "storage "trainer" of device node-a.0".
std::string NameOf(const StorageKey& key);

// FailedPrecondition.
absl::Status OtherSize(const StorageKey& key, int64_t expected, int64_t found);

// NotFound.
absl::Status NotThere(const StorageKey& key);
// NotFound: `failed` could not be made.
absl::Status NotThere(const StorageKey& key, const Arena& failed);

// Why memory that was made is gone; OK while it is not.
absl::Status LossOf(const Arena& arena);
// FailedPrecondition: the GPU has lost the memory.
absl::Status Lost(const StorageKey& key, const Arena& lost);

}  // namespace crossmesh
