#include "common/base/status_macros.h"
#include "common/plan/broadcast_groups.h"
#include "common/plan/collective_proof.h"
#include "common/plan/communicator_splits.h"
#include "common/plan/course_tables.h"
#include "common/plan/delivery_ledger.h"
#include "common/plan/element_boundaries.h"
#include "common/plan/m2n_proof.h"
#include "common/plan/media.h"
#include "common/plan/own_summand.h"
#include "common/plan/releasing_memory.h"
#include "common/plan/slicing_proof.h"
#include "common/plan/worker_part.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <tuple>
#include <vector>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// What comes to the others is in the other half of the part.
std::vector<DeviceRank> DevicesServed(const WorkerPart& part) {
  std::vector<DeviceRank> served;
  std::ranges::copy_if(part.spec().devices, std::back_inserter(served),
                       [&](DeviceRank device) { return part.Serves(device); });
  return served;
}

class PartProver {
 public:
  PartProver(const WorkerPart& part, const Slicing& slicing)
      : part_(part),
        spec_(part.spec()),
        slicing_(slicing),
        boundaries_(part.tensors(), slicing),
        ledger_(part.tensors(), slicing, DevicesServed(part)),
        reached_by_(part.tensors().devices().size(), -1) {}

  absl::Status Prove() {
    RETURN_IF_ERROR(FindClasses());
    RETURN_IF_ERROR(ProveDeliveries());
    return ProvePlaces();
  }

 private:
  bool IsMine(DeviceRank device) const { return std::ranges::binary_search(spec_.devices, device); }

  // Fills in class_of_: the classes of the slicing that the part means.
  absl::Status FindClasses() {
    for (int32_t i = 0; i < static_cast<int32_t>(spec_.class_sets.size()); ++i) {
      class_of_.push_back(part_.ClassIn(slicing_, i));
      if (class_of_.back() == kNoClass) {
        return absl::InternalError(
            absl::StrCat("class ", i,
                         " of the worker's part: expected device sets that hold and "
                         "need something under the tensors' layouts, found others"));
      }
    }
    return absl::OkStatus();
  }

  // Walks classes ascending, with the copies and relays of each.
  absl::Status ProveDeliveries() {
    std::vector<int32_t> copies(spec_.copies.size());
    std::vector<int32_t> relays(spec_.relays.size());
    for (size_t i = 0; i < copies.size(); ++i) copies[i] = static_cast<int32_t>(i);
    for (size_t i = 0; i < relays.size(); ++i) relays[i] = static_cast<int32_t>(i);
    std::ranges::sort(copies, {}, [&](int32_t i) { return std::pair(ClassOfCopy(i), i); });
    std::ranges::sort(relays, {}, [&](int32_t i) {
      return std::tuple(ClassOfRelay(i), spec_.relays[i].begin, i);
    });
    // The ledger takes one class after the other, and the bytes of a device in ascending order.
    auto copy = copies.begin();
    auto relay = relays.begin();
    for (ClassIndex c = 0; c < static_cast<ClassIndex>(slicing_.classes().size()); ++c) {
      ledger_.Open(c);
      for (; copy != copies.end() && ClassOfCopy(*copy) == c; ++copy) {
        RETURN_IF_ERROR(ledger_.Copy(spec_.copies[*copy].device));
      }
      for (; relay != relays.end() && ClassOfRelay(*relay) == c; ++relay) {
        RETURN_IF_ERROR(ProveRelay(*relay));
      }
      RETURN_IF_ERROR(ledger_.Close());
    }
    return absl::OkStatus();
  }

  ClassIndex ClassOfCopy(int32_t copy) const { return class_of_[spec_.copies[copy].class_sets]; }
  ClassIndex ClassOfRelay(int32_t relay) const { return class_of_[spec_.relays[relay].class_sets]; }

  absl::Status ProveRelay(int32_t r) {
    const WorkerPart::PartRelay& relay = spec_.relays[r];
    const ClassIndex c = ClassOfRelay(r);
    if (relay.end > slicing_.classes()[c].bytes) {
      return Error(relay, absl::StrCat("at most the class's ", slicing_.classes()[c].bytes),
                   "more");
    }
    for (const int64_t edge : {relay.begin, relay.end}) {
      if (!boundaries_.IsBoundary(c, edge)) {
        return Error(relay, "cut between elements", absl::StrCat("cut inside one, at ", edge));
      }
    }
    const std::span<const DeviceRank> holders = slicing_.holders(c);
    const std::span<const DeviceRank> receivers = slicing_.receivers(c);
    if (!std::ranges::binary_search(holders, relay.root)) {
      return Error(relay, "a root that holds the class", Name(relay.root));
    }
    reached_by_[relay.root] = r;
    for (int64_t h = relay.first_hop; h < relay.first_hop + relay.hop_count; ++h) {
      const WorkerPart::PartHop& hop = spec_.hops[h];
      // How the bytes got to another worker's device is that worker's to prove.
      const bool may_have = IsMine(hop.from) || hop.from == relay.root
                                ? reached_by_[hop.from] == r
                                : std::ranges::binary_search(receivers, hop.from) &&
                                      !std::ranges::binary_search(holders, hop.from);
      if (!may_have) {
        return Error(relay, "hops from its root or from where an earlier hop went",
                     absl::StrCat("one from ", Name(hop.from), " to ", Name(hop.to)));
      }
      RETURN_IF_ERROR(ledger_.Deliver(relay.relay, hop.to, {relay.begin, relay.end}));
      reached_by_[hop.to] = r;
    }
    return absl::OkStatus();
  }

  // All hops of a channel that begins or ends here are in the part.
  absl::Status ProvePlaces() const {
    std::vector<WorkerPart::PartHop> hops = spec_.hops;
    const auto key = [](const WorkerPart::PartHop& h) { return std::pair(h.channel, h.place); };
    const auto ends = [](const WorkerPart::PartHop& h) { return std::pair(h.from, h.to); };
    std::ranges::sort(hops, {}, key);
    for (size_t i = 0; i < hops.size(); ++i) {
      const bool first = i == 0 || hops[i - 1].channel != hops[i].channel;
      const int32_t place = first ? 0 : hops[i - 1].place + 1;
      const bool same_ends = i > 0 && ends(hops[i - 1]) == ends(hops[i]);
      // A channel's number is its place among all sorted pairs, so numbers and pairs ascend
      // together: both ends of a channel then mean the same one.
      const bool ascends = i == 0 || ends(hops[i - 1]) < ends(hops[i]);
      if (hops[i].place == place && (first ? ascends : same_ends)) continue;
      return absl::InternalError(
          absl::StrCat("channel ", hops[i].channel, " of the worker's part, ", Name(hops[i].from),
                       ">", Name(hops[i].to), ": expected place ", place,
                       " of one pair of devices, channels ascending with their pairs, found place ",
                       hops[i].place));
    }
    return absl::OkStatus();
  }

  std::string Name(DeviceRank device) const { return ToString(part_.tensors().devices()[device]); }

  absl::Status Error(const WorkerPart::PartRelay& relay, absl::string_view expected,
                     absl::string_view found) const {
    return absl::InternalError(absl::StrCat("relay ", relay.relay, ", bytes [", relay.begin, ", ",
                                            relay.end, "): expected ", expected, ", found ",
                                            found));
  }

  const WorkerPart& part_;
  const WorkerPart::Spec& spec_;
  const Slicing& slicing_;
  const ElementBoundaries boundaries_;
  DeliveryLedger ledger_;
  std::vector<ClassIndex> class_of_;  // by index into class_sets
  std::vector<int32_t> reached_by_;   // [device]: the last relay that got there
};

}  // namespace

absl::Status ProvePart(const WorkerPart& part, const Slicing& slicing) {
  if (part.spec().devices.empty()) return absl::OkStatus();  // and so no hop and no copy
  ASSIGN_OR_RETURN(const TileFootprint memory,
                   ProveSlicing(part.tensors(), slicing, part.spec().devices));
  if (part.spec().binding == BindingMode::kInPlace && part.spec().shared_storage) {
    RETURN_IF_ERROR(ProveInPlace(part.tensors(), memory));
  }
  // Their steps' parts are proven by themselves.
  if (part.has_courses()) {
    const std::vector<CourseTables> courses(part.courses().begin(), part.courses().end());
    RETURN_IF_ERROR(ProveReleasing(courses, part.spec().binding, part.spec().shared_storage));
    RETURN_IF_ERROR(ProveOwnSummandsStay(courses, part.spec().binding, part.spec().shared_storage));
    RETURN_IF_ERROR(ProveCollectives(part));
    RETURN_IF_ERROR(ProveMedia(part));
    absl::Status status = ProveCourses(part.tensors(), courses, part.spec().devices);
    if (status.ok()) status = ProveSplits(part.tensors(), courses);
    return status.ok() ? status : absl::InternalError(status.message());
  }
  RETURN_IF_ERROR(PartProver(part, slicing).Prove());
  RETURN_IF_ERROR(ProveBroadcastGroups(part));
  RETURN_IF_ERROR(ProveMedia(part));
  return ProveM2n(part);
}

}  // namespace crossmesh
