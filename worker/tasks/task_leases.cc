#include "worker/tasks/task_leases.h"

#include "common/base/status_macros.h"
#include "common/plan/course.h"
#include "common/plan/course_tables.h"
#include "common/plan/releasing_memory.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

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

bool GivesSourceUp(const WorkerPart& part) {
  const std::vector<CourseTables> courses(part.courses().begin(), part.courses().end());
  return ReleasesSource(courses);
}

// What a device has never at a time of the bytes of its source and its destination together.
int64_t SparedBytes(const LaidOutPart& part, DeviceRank device, int64_t bytes) {
  const WorkerPart& of = part.prepared->part();
  const std::vector<CourseTables> courses(of.courses().begin(), of.courses().end());
  const DeviceId& name = of.tensors().devices()[device];
  // Arrays between steps count there, and have a share of their own: that much is not spared.
  return std::max<int64_t>(0, bytes - ReleasingPeakBytes(of.tensors(), courses, name));
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
  releases_source_ = GivesSourceUp(part.prepared->part());
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
    absl::StatusOr<StorageTable::Lease> lease = TakeSource(key, request, part, device);
    if (!lease.ok()) return Explain("source", key, layout.bytes, lease.status());
    sources_.emplace(device, *std::move(lease));
  }
  return absl::OkStatus();
}

absl::StatusOr<StorageTable::Lease> TaskLeases::TakeSource(const StorageKey& key,
                                                           const StartRequest& request,
                                                           const LaidOutPart& part,
                                                           DeviceRank device) {
  const int64_t bytes = part.sources.at(device).bytes;
  if (!releases_source_) return storages_->LeaseForReading(key, bytes, request.Name());
  StorageTable::Consuming how{.user = request.Name()};
  const auto destination = part.destinations.find(device);
  // A destination that is there has its share of the budget already.
  if (destination != part.destinations.end() &&
      absl::IsNotFound(
          storages_->Status(KeyOf(part, request.destination_storage, device)).status())) {
    how.spared_bytes = SparedBytes(part, device, bytes + destination->second.bytes);
  }
  return storages_->LeaseForConsuming(key, bytes, how);
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
    if (releases_source_ && !lease->can_release()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "destination storage \"", key.name, "\" of device ", ToString(key.device),
          ": expected this worker's own memory of the host, in small pages, where the source is ",
          "released, found other memory"));
    }
    // What it takes is to grow as that of the source shrinks.
    if (releases_source_) lease->UseSmallPages();
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

void TaskLeases::BeginReleasing(DeviceRank device) {
  const auto found = sources_.find(device);
  if (found != sources_.end()) found->second.BeginWriting();
}

void TaskLeases::ConsumeSources() {
  if (!releases_source_) return;
  for (auto& [device, lease] : std::exchange(sources_, {})) storages_->Consume(std::move(lease));
}

absl::Status TaskLeases::Commit(DeviceRank device) {
  const auto found = destinations_.find(device);
  if (found == destinations_.end()) return absl::OkStatus();
  StorageTable::Lease lease = std::move(found->second);
  destinations_.erase(found);
  return storages_->Commit(std::move(lease));
}

}  // namespace crossmesh
