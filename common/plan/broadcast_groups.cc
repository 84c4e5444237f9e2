#include "common/plan/broadcast_groups.h"

#include "common/base/status_macros.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr int32_t kNone = -1;   // of any group
constexpr int32_t kMixed = -2;  // relays of other devices as well, or of too few

class GroupProver {
 public:
  // Whether this prover sees all that gets to a device.
  using IsMine = std::function<bool(DeviceRank)>;

  GroupProver(const TensorTable& tensors, IsMine is_mine)
      : tensors_(tensors),
        is_mine_(std::move(is_mine)),
        group_of_(tensors.devices().size(), kNone) {}

  absl::Status Add(std::span<const DeviceRank> group) {
    if (group.size() < kBroadcastGroupMin) {
      return absl::InternalError(absl::StrCat("broadcast group: expected at least ",
                                              kBroadcastGroupMin, " devices, found ",
                                              group.size()));
    }
    for (const DeviceRank device : group) {
      if (group_of_[device] != kNone) {
        return absl::InternalError(absl::StrCat("device ", ToString(tensors_.devices()[device]),
                                                ": expected in one broadcast group, found in two"));
      }
      group_of_[device] = static_cast<int32_t>(mine_in_group_.size());
    }
    mine_in_group_.push_back(std::ranges::count_if(group, is_mine_));
    return absl::OkStatus();
  }

  // That relay `index` stays in its root's group and gets to all of it, or touches no group.
  template <typename RelayHop>
  absl::Status Prove(int64_t index, DeviceRank root, std::span<const RelayHop> hops) const {
    const int32_t group = group_of_[root];
    int64_t reached = is_mine_(root) ? 1 : 0;
    for (const RelayHop& hop : hops) {
      for (const DeviceRank device : {hop.from, hop.to}) {
        if (group_of_[device] == group) continue;
        return absl::InternalError(
            absl::StrCat("relay ", index,
                         ": expected all of its devices in one broadcast group or in none, "
                         "found ",
                         ToString(tensors_.devices()[root]), " and ",
                         ToString(tensors_.devices()[device]), " apart"));
      }
      if (is_mine_(hop.to)) ++reached;
    }
    if (group == kNone || reached == mine_in_group_[group]) return absl::OkStatus();
    return absl::InternalError(absl::StrCat("relay ", index,
                                            ": expected that it gets to all of its broadcast "
                                            "group, ",
                                            mine_in_group_[group], " devices with its root, found ",
                                            reached));
  }

 private:
  const TensorTable& tensors_;
  const IsMine is_mine_;
  std::vector<int32_t> group_of_;       // [device]
  std::vector<int64_t> mine_in_group_;  // [group]: devices
};

}  // namespace

IdSetList FindBroadcastGroups(std::span<const Relay> relays, std::span<const Hop> hops,
                              size_t devices) {
  IdSets sets;
  std::vector<int32_t> set_of(devices, kNone);  // of the relays that touch the device
  std::vector<DeviceRank> touched;
  for (const Relay& relay : relays) {
    touched.assign(1, relay.root);
    for (const Hop& hop : hops.subspan(relay.first_hop, relay.hop_count)) {
      touched.push_back(hop.to);
    }
    // Most relays of large plans make no group, which is soon said.
    const bool makes_none =
        touched.size() < kBroadcastGroupMin ||
        std::ranges::any_of(touched, [&](DeviceRank device) { return set_of[device] == kMixed; });
    if (makes_none) {
      for (const DeviceRank device : touched) set_of[device] = kMixed;
      continue;
    }
    std::ranges::sort(touched);
    const int32_t set = sets.Intern(touched);
    for (const DeviceRank device : touched) {
      set_of[device] = set_of[device] == kNone || set_of[device] == set ? set : kMixed;
    }
  }
  IdSetList groups;
  for (int32_t set = 0; set < sets.size(); ++set) {
    const std::span<const DeviceRank> group = sets[set];
    const bool is_apart =
        std::ranges::all_of(group, [&](DeviceRank device) { return set_of[device] == set; });
    if (group.size() >= kBroadcastGroupMin && is_apart) groups.Add(group);
  }
  return groups;
}

absl::Status ProveBroadcastGroups(const Plan& plan) {
  const IdSetList& groups = plan.spec().broadcast_groups;
  if (groups.size() == 0) return absl::OkStatus();
  GroupProver prover(plan.tensors(), [](DeviceRank) { return true; });
  for (int32_t i = 0; i < groups.size(); ++i) RETURN_IF_ERROR(prover.Add(groups[i]));
  for (int64_t r = 0; r < std::ssize(plan.relays()); ++r) {
    const Relay& relay = plan.relays()[r];
    RETURN_IF_ERROR(prover.Prove(r, relay.root, plan.hops(relay)));
  }
  return absl::OkStatus();
}

absl::Status ProveBroadcastGroups(const WorkerPart& part) {
  const WorkerPart::Spec& spec = part.spec();
  if (spec.broadcast_groups.empty()) return absl::OkStatus();
  GroupProver prover(part.tensors(), [&spec](DeviceRank device) {
    return std::ranges::binary_search(spec.devices, device);
  });
  for (const int32_t set : spec.broadcast_groups) {
    RETURN_IF_ERROR(prover.Add(spec.device_sets[set]));
  }
  for (const WorkerPart::PartRelay& relay : spec.relays) {
    RETURN_IF_ERROR(prover.Prove(relay.relay, relay.root,
                                 std::span(spec.hops).subspan(relay.first_hop, relay.hop_count)));
  }
  return absl::OkStatus();
}

}  // namespace crossmesh
