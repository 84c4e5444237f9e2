#pragma once

#include "controller/store/metadata_store.h"
#include "controller/store/sqlite/testing/simulated_disk.h"
#include "tests/simulation/simulated_node.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include <absl/status/status.h>

namespace crossmesh {

class TemporaryFolder;

// The state folder of a controller, with the real store of SQLite on a simulated disk. A process
// has it from Open to Close.
class SimulatedStateFolder {
 public:
  // `on_end` is called when the process cannot go on: the power is gone, the disk has failed too
  // often, or the store is damaged. It must not close the folder at once.
  SimulatedStateFolder(SimulatedNode& node, uint64_t seed, std::function<void()> on_end);
  ~SimulatedStateFolder();

  // With the power on. Errors as SqliteStore::Open. When a bit was flipped, and that is found, all
  // files are set right first, as an operator would restore a copy.
  absl::Status Open();
  MetadataStore& store();
  uint64_t next_epoch() const;
  // The process has been killed; what it wrote, the system still has. Repeatable.
  void Close();

  SimulatedDisk& disk() { return disk_; }
  // One bit of one of the files, `place` of all, while no process has them.
  void FlipBit(double place);

 private:
  class Store;

  absl::Status OpenStore();

  SimulatedNode& node_;
  const std::function<void()> on_end_;
  const std::unique_ptr<TemporaryFolder> folder_;  // for the lock
  SimulatedDisk disk_;
  std::optional<SimulatedDisk::Image> before_flips_;  // since it was opened last
  bool log_has_flips_ = false;                        // likewise
  bool has_lost_power_ = false;                       // likewise
  bool has_failed_ = false;                           // too often, so that the store has given up
  std::unique_ptr<Store> store_;
};

}  // namespace crossmesh
