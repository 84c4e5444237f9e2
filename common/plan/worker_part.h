#pragma once

#include "common/base/digest.h"
#include "common/plan/channels.h"
#include "common/plan/id_sets.h"
#include "common/plan/plan.h"

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// How bytes come to a device: by way of host memory, or over a communicator of GPUs. Numbered as in
// the API.
enum class Medium : uint8_t { kAny = 0, kHost = 1, kGpus = 2 };

// What one worker needs of a plan: the tensors, and the relays that touch its devices. Cut by the
// controller, travels once, named by digest. Small: classes and hops, never boxes. Immutable.
class WorkerPart {
 public:
  // One class that a relay or copy of this part uses, named by its sets so that the worker finds
  // the same class in its own slicing. Classes share sets, so these are indices into device_sets.
  struct ClassSets {
    int32_t holders = 0;
    int32_t receivers = 0;
    ConversionIndex conversion = kNoConversion;
    friend bool operator==(const ClassSets&, const ClassSets&) = default;
  };
  struct PartHop {
    DeviceRank from = 0;
    DeviceRank to = 0;
    ChannelIndex channel = 0;
    int32_t place = 0;
    int32_t period = 0;
  };
  struct PartRelay {
    int64_t relay = 0;       // index in the plan: for messages and reports
    int32_t class_sets = 0;  // index into class_sets
    DeviceRank root = 0;
    int64_t begin = 0;
    int64_t end = 0;
    int64_t first_hop = 0;  // only hops from or to this worker's devices
    int32_t hop_count = 0;
    DueTime due;
  };
  struct PartCopy {
    int32_t class_sets = 0;
    DeviceRank device = 0;
  };
  struct Spec {
    Digest plan;
    std::shared_ptr<const TensorTable> tensors;
    std::vector<DeviceRank> devices;  // this worker's, ascending
    IdSetList device_sets;
    std::vector<ClassSets> class_sets;
    std::vector<PartRelay> relays;  // in plan order
    std::vector<PartHop> hops;
    std::vector<PartCopy> copies;
    // Those of the plan that this worker's devices are in, as indices into device_sets.
    std::vector<int32_t> broadcast_groups;
    std::vector<DeviceRank> over_gpus = {};  // of the whole plan
    // Those of the plan, with this worker's parts of their steps' plans.
    std::shared_ptr<const std::vector<Course<WorkerPart>>> courses = nullptr;
    // Of a half of a part (CutByMedium): it has the relays and copies to devices that this medium
    // serves.
    Medium medium = Medium::kAny;
    bool m2n = false;  // this and the next three as in the plan
    int64_t chunk_bytes = Plan::kChunkBytesDefault;
    int32_t periods = 0;
    int64_t least_run_ns = 0;
    BindingMode binding = BindingMode::kShadow;
    bool shared_storage = false;
  };

  // InvalidArgument when an index or range is out of bounds: parts come over the network. Relays
  // must have their hops one after the other, in order and without gaps. Cost: linear in the part.
  static absl::StatusOr<WorkerPart> Create(Spec spec);

  const Spec& spec() const { return spec_; }
  const TensorTable& tensors() const { return *spec_.tensors; }
  bool has_courses() const { return spec_.courses != nullptr; }
  const std::vector<Course<WorkerPart>>& courses() const;
  // M2N has all devices make its calls, and in courses all take part.
  bool moves_bytes() const {
    return !spec_.relays.empty() || !spec_.copies.empty() ||
           ((spec_.m2n || has_courses()) && !spec_.devices.empty());
  }
  bool IsOverGpus(DeviceRank device) const;
  // Whether what the device needs comes by relays and copies of this part, or half of one.
  bool Serves(DeviceRank device) const;
  // Of entry `class_sets` of the spec; ascending.
  std::span<const DeviceRank> holders(int32_t class_sets) const;
  std::span<const DeviceRank> receivers(int32_t class_sets) const;
  // That the device is in; empty when it is in none. Cost: linear in the part's groups.
  std::span<const DeviceRank> BroadcastGroupOf(DeviceRank device) const;
  // The class with these sets, so converted, in a slicing of the same tensors, or kNoClass.
  ClassIndex ClassIn(const Slicing& slicing, int32_t class_sets) const;
  const Digest& digest() const { return digest_; }

 private:
  explicit WorkerPart(Spec spec) : spec_(std::move(spec)) {}
  absl::Status CheckDevices() const;
  absl::Status CheckClasses() const;
  absl::Status CheckRelays() const;
  absl::Status CheckCopies() const;
  absl::Status CheckBroadcastGroups() const;
  absl::Status CheckOverGpus() const;
  absl::Status CheckCourses() const;
  Digest ComputeDigest() const;

  Spec spec_;
  Digest digest_;
};

// The parts of workers that own the given devices (a worker whose devices take no part gets an
// empty one). Every device of the plan must be owned by exactly one worker: FailedPrecondition
// naming the device and "expected a live worker" otherwise. Cost: linear in relays and hops.
absl::StatusOr<std::vector<WorkerPart>> CutParts(
    const Plan& plan, const std::vector<std::vector<DeviceId>>& devices_of_worker);

// The part of some of a part's devices, ascending: what CutParts would make for a worker that owns
// just these. InvalidArgument when the part lacks one of them. Cost: linear in the part.
absl::StatusOr<WorkerPart> CutPart(const WorkerPart& part, std::vector<DeviceRank> devices);

// Half of a part of a plan that joins GPUs and host memory: the relays and copies to those of its
// devices that `medium`, which is not kAny, serves; they keep their numbers, and a channel is all
// in one half. Of courses it is the part of those devices alone, since no step joins the halves. Of
// a part that was proven. Cost: linear in the part.
absl::StatusOr<WorkerPart> CutByMedium(const WorkerPart& part, Medium medium);

// What a worker proves of its part before the first byte: the classes are those of the layouts, its
// receivers get every byte exactly once, no hop leaves from a device that cannot have the bytes,
// places of the channels that begin or end here are in order, broadcast groups are such. `slicing`
// is of the part's tensors, in scope at least of its devices. Same codes as Prove.
absl::Status ProvePart(const WorkerPart& part, const Slicing& slicing);

// Digest of the order of each channel of the part, as both its ends see it: relays, byte ranges and
// due times by place. Ascending by channel. Cost: that of sorting the part's hops.
std::vector<std::pair<ChannelIndex, Digest>> ChannelOrderDigests(const WorkerPart& part);

}  // namespace crossmesh
