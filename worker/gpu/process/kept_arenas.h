#pragma once

#include "common/base/byte_count.h"
#include "common/base/unique_fd.h"
#include "worker/gpu/protocol/tile_place.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// The memory of a GPU that outlives the processes which drive it: a descriptor of each arena, and,
// as long as there is one, the GPU's device file, without which the system may free the memory
// between two processes. Each process imports the arenas; what it cannot import is lost.
// Thread-compatible.
class KeptArenas {
 public:
  struct Kept {
    ByteCount bytes;
    UniqueFd descriptor;          // none: it has a handle
    std::string ipc_handle = {};  // of memory that another process has
    int failed_imports = 0;       // in processes that follow each other
  };
  enum class Import : uint8_t {
    kDone,
    kLost,       // there is no such memory any more: it is forgotten
    kMayBeDone,  // by another process: this one is lost, or lacks what another one may have
  };

  // Processes that may be lost at the import of an arena before it is taken to be the reason.
  static constexpr int kImportsMax = 3;

  // `gpu`: its UUID, for the log. `system_root`: where /proc and /dev are.
  KeptArenas(std::string gpu, std::string system_root);

  const std::map<ArenaId, Kept>& all() const { return arenas_; }

  // Of the GPU at this PCI address, in use by its process right now.
  void Keep(ArenaId arena, Kept kept, const std::string& pci_address);
  // Whether it was there.
  bool Forget(ArenaId arena);
  // A descriptor for another process; none of memory by a handle. NotFound, ResourceExhausted.
  absl::StatusOr<UniqueFd> Export(ArenaId arena) const;
  // Has the GPU's file closed, which costs least before its process has ended.
  void ReleaseDevice() { device_file_.Reset(); }

  // A process begins to import them all, in order.
  void BeginImports() { suspect_.reset(); }
  // What became of one; Unavailable when the process was lost before that.
  Import OnImported(ArenaId arena, const absl::Status& imported);
  // The process is lost while it imports. The arena that was lost with it, once the same one was
  // the first that is not imported for kImportsMax processes.
  std::optional<ArenaId> JudgeSuspect();

 private:
  void HoldDevice(const std::string& pci_address);

  const std::string gpu_;
  const std::string system_root_;
  std::map<ArenaId, Kept> arenas_;
  std::optional<ArenaId> suspect_;  // the first that a process did not import
  // While there are arenas; without any it would only keep the GPU from being reset.
  UniqueFd device_file_;
  bool is_refusal_told_ = false;  // of that file
};

}  // namespace crossmesh
