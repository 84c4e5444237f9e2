#include "worker/tasks/task_leases.h"

#include "common/base/status_macros.h"

#include <algorithm>
#include <span>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/string_view.h>

namespace crossmesh {
namespace {

StorageKey KeyOf(const LaidOutPart& part, const std::string& storage, DeviceRank device) {
  return {.name = storage, .device = part.prepared->part().tensors().devices()[device]};
}

// The table's own messages name the storage, and what was expected and found.
absl::Status Explain(absl::string_view side, const StorageKey& key, int64_t bytes,
                     const absl::Status& found) {
  if (found.ok()) return found;
  if (!absl::IsNotFound(found)) {
    return absl::Status(found.code(), absl::StrCat(side, " ", found.message()));
  }
  return absl::FailedPreconditionError(absl::StrCat(side, " storage \"", key.name, "\" of device ",
                                                    ToString(key.device), ": expected memory of ",
                                                    bytes, " bytes, found no such storage"));
}

BoundTiles Bind(const StorageLayout& layout, std::span<std::byte> memory) {
  BoundTiles tiles;
  tiles.tensor.reserve(layout.offset_of_tensor.size());
  for (const int64_t offset : layout.offset_of_tensor) {
    tiles.tensor.push_back(offset < 0 ? nullptr : memory.data() + offset);
  }
  return tiles;
}

}  // namespace

absl::StatusOr<TaskLeases> TaskLeases::Take(const StartRequest& request, const LaidOutPart& part,
                                            StorageTable& storages) {
  TaskLeases leases(storages);
  // Sources first: a destination in place is dirty from its lease on.
  RETURN_IF_ERROR(leases.TakeSources(request, part));
  RETURN_IF_ERROR(leases.TakeDestinations(request, part));
  return leases;
}

absl::Status TaskLeases::CheckSources(const StartRequest& request, const LaidOutPart& part,
                                      StorageTable& storages) {
  return TaskLeases(storages).TakeSources(request, part);
}

std::vector<StorageKey> TaskLeases::Destinations(const StartRequest& request,
                                                 const LaidOutPart& part) {
  std::vector<StorageKey> keys;
  for (const auto& [device, layout] : part.destinations) {
    keys.push_back(KeyOf(part, request.destination_storage, device));
  }
  return keys;
}

absl::Status TaskLeases::TakeSources(const StartRequest& request, const LaidOutPart& part) {
  const WorkerPart::Spec& spec = part.prepared->part().spec();
  const bool one_memory = spec.shared_storage && spec.binding == BindingMode::kInPlace &&
                          request.source_storage == request.destination_storage;
  for (const auto& [device, layout] : part.sources) {
    if (layout.bytes == 0) continue;
    const auto destination = part.destinations.find(device);
    if (one_memory && destination != part.destinations.end() && destination->second.bytes > 0) {
      // The lease for writing keeps the memory for reading as well.
      sources_in_destination_.push_back(device);
      continue;
    }
    const StorageKey key = KeyOf(part, request.source_storage, device);
    absl::StatusOr<StorageTable::Lease> lease =
        storages_->LeaseForReading(key, layout.bytes, request.Name());
    if (!lease.ok()) return Explain("source", key, layout.bytes, lease.status());
    sources_.emplace(device, *std::move(lease));
  }
  return absl::OkStatus();
}

absl::Status TaskLeases::TakeDestinations(const StartRequest& request, const LaidOutPart& part) {
  const StorageTable::Writing how = {
      .shadow = part.prepared->part().spec().binding == BindingMode::kShadow,
      .create = request.create_destination,
      .user = request.Name()};
  for (const auto& [device, layout] : part.destinations) {
    if (layout.bytes == 0) continue;
    const StorageKey key = KeyOf(part, request.destination_storage, device);
    absl::StatusOr<StorageTable::Lease> lease = storages_->LeaseForWriting(key, layout.bytes, how);
    if (!lease.ok()) return Explain("destination", key, layout.bytes, lease.status());
    destinations_.emplace(device, *std::move(lease));
  }
  return absl::OkStatus();
}

absl::flat_hash_map<DeviceRank, BoundTiles> TaskLeases::BindSources(const LaidOutPart& part) const {
  absl::flat_hash_map<DeviceRank, BoundTiles> bound;
  for (const auto& [device, lease] : sources_) {
    bound.emplace(device, Bind(part.sources.at(device), lease.bytes()));
  }
  for (const DeviceRank device : sources_in_destination_) {
    bound.emplace(device, Bind(part.sources.at(device), destinations_.at(device).bytes()));
  }
  return bound;
}

absl::flat_hash_map<DeviceRank, BoundTiles> TaskLeases::BindDestinations(
    const LaidOutPart& part) const {
  absl::flat_hash_map<DeviceRank, BoundTiles> bound;
  for (const auto& [device, lease] : destinations_) {
    bound.emplace(device, Bind(part.destinations.at(device), lease.bytes()));
  }
  return bound;
}

absl::Status TaskLeases::CheckSourcesUndisturbed() const {
  for (const auto& [device, lease] : sources_) RETURN_IF_ERROR(lease.CheckUndisturbed());
  return absl::OkStatus();
}

void TaskLeases::BeginWriting() {
  for (auto& [device, lease] : destinations_) lease.BeginWriting();
}

absl::Status TaskLeases::Commit(DeviceRank device) {
  const auto found = destinations_.find(device);
  if (found == destinations_.end()) return absl::OkStatus();
  StorageTable::Lease lease = std::move(found->second);
  destinations_.erase(found);
  return storages_->Commit(std::move(lease));
}

}  // namespace crossmesh
