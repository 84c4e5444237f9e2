#pragma once

#include "worker/executor/laid_out_part.h"
#include "worker/executor/task.h"
#include "worker/memory/storage_table.h"
#include "worker/tasks/start_request.h"

#include <cstddef>
#include <string>
#include <vector>

#include <absl/container/btree_map.h>
#include <absl/container/flat_hash_map.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// The memory that a task uses: leases of the storages that it reads and writes. What is neither
// committed nor abandoned when this is destroyed is abandoned. A storage that was made for the task
// goes when its device is abandoned. Thread-compatible.
class TaskLeases {
 public:
  // What StorageTable refuses, with side, storage, device and sizes named. Leases all or nothing.
  // `storages` must outlive it.
  static absl::StatusOr<TaskLeases> Take(const StartRequest& request, const LaidOutPart& part,
                                         StorageTable& storages);

  // Could it lease all that the task reads? What Take says, of sources.
  static absl::Status CheckSources(const StartRequest& request, const LaidOutPart& part,
                                   StorageTable& storages);

  // The names of the storages that the task writes.
  static std::vector<StorageKey> Destinations(const StartRequest& request, const LaidOutPart& part);

  absl::flat_hash_map<DeviceRank, BoundTiles> BindSources(const LaidOutPart& part) const;
  absl::flat_hash_map<DeviceRank, BoundTiles> BindDestinations(const LaidOutPart& part) const;

  // Of the first source for which it is not OK, as Lease::CheckUndisturbed.
  absl::Status CheckSourcesUndisturbed() const;

  // From here on destinations may have been written.
  void BeginWriting();
  // The device's source has given memory back: if the lease ends, it stays DIRTY.
  void BeginReleasing(DeviceRank device);
  // Deletes the sources, if they are given up.
  void ConsumeSources();
  bool writes(DeviceRank device) const { return destinations_.contains(device); }
  // Ends the lease of a destination device. Those without a byte have none, which is as good.
  absl::Status Commit(DeviceRank device);
  void Abandon(DeviceRank device) { destinations_.erase(device); }
  void AbandonAll() { destinations_.clear(); }

 private:
  explicit TaskLeases(StorageTable& storages) : storages_(&storages) {}

  absl::Status TakeSources(const StartRequest& request, const LaidOutPart& part);
  absl::StatusOr<StorageTable::Lease> TakeSource(const StorageKey& key, const StartRequest& request,
                                                 const LaidOutPart& part, DeviceRank device);
  absl::Status TakeDestinations(const StartRequest& request, const LaidOutPart& part);

  StorageTable* storages_;
  bool releases_source_ = false;
  absl::btree_map<DeviceRank, StorageTable::Lease> sources_;
  absl::btree_map<DeviceRank, StorageTable::Lease> destinations_;
  // Devices whose source tiles lie in the memory that is written.
  std::vector<DeviceRank> sources_in_destination_;
};

}  // namespace crossmesh
