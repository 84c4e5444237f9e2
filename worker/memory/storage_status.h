#pragma once

#include "common/mesh/device.h"

#include <compare>
#include <cstdint>
#include <string>
#include <utility>

namespace crossmesh {

// A named set of tiles on one device, e.g. ("trainer", "node-a.0").
struct StorageKey {
  std::string name;
  DeviceId device;
  friend auto operator<=>(const StorageKey&, const StorageKey&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const StorageKey& k) {
    return H::combine(std::move(h), k.name, k.device);
  }
};

enum class StorageState : uint8_t {
  kReady,  // readers see whole contents
  kDirty,  // received in place, or being so, and not committed: readers are refused
  kLost,   // its GPU has lost the memory: it can be deleted, or created again, and no more
};

struct StorageStatus {
  StorageKey key;
  int64_t bytes = 0;
  int64_t shadow_bytes = 0;  // beside `bytes`; 0: it has no shadow
  uint64_t generation = 0;   // counts commits and replacements; 1 at creation
  StorageState state = StorageState::kReady;
  int32_t readers = 0;
  bool writing = false;
  std::string gpu = {};  // the UUID of the one that has the bytes; empty: host memory
};

// What the storages of a worker take, in bytes, apart from versions that only their readers hold
// and from memory of user processes.
struct StorageBytes {
  int64_t resident = 0;   // versions that nothing writes
  int64_t receiving = 0;  // written now: shadows, and storages in place
  int64_t shadows = 0;    // shadows that wait for the next version
  int64_t total() const { return resident + receiving + shadows; }
};

}  // namespace crossmesh
