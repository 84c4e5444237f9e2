#include "common/plan/collective_proof.h"

#include "common/base/error_place.h"
#include "common/base/status_macros.h"
#include "common/plan/course.h"
#include "common/plan/step_collective.h"

#include <algorithm>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

std::span<const Hop> HopsOf(const Plan& plan, const Relay& relay) { return plan.hops(relay); }
std::span<const WorkerPart::PartHop> HopsOf(const WorkerPart& part,
                                            const WorkerPart::PartRelay& relay) {
  return std::span(part.spec().hops).subspan(relay.first_hop, relay.hop_count);
}

std::span<const Relay> RelaysOf(const Plan& plan) { return plan.relays(); }
std::span<const WorkerPart::PartRelay> RelaysOf(const WorkerPart& part) {
  return part.spec().relays;
}

// Whether relays of a group are in a move.
bool HasPart(const Plan& /*plan*/, std::span<const DeviceRank> /*group*/) { return true; }
bool HasPart(const WorkerPart& part, std::span<const DeviceRank> group) {
  return std::ranges::any_of(group, [&](DeviceRank device) {
    return std::ranges::binary_search(part.spec().devices, device);
  });
}

// Of a step's plan or part, of which each relay stays within a group.
template <class Move>
class RelaysOfGather {
 public:
  RelaysOfGather(const Move& move, const GroupedCollective& gather)
      : move_(move), devices_(move.tensors().devices()) {
    group_of_.assign(devices_.size(), -1);
    for (const std::vector<DeviceRank>& group : gather.groups) {
      for (const DeviceRank device : group) group_of_[device] = group.front();
      if (HasPart(move, group)) wanted_.insert(group.begin(), group.end());
    }
  }

  absl::Status Prove() const {
    const auto relays = RelaysOf(move_);
    std::set<DeviceRank> roots;
    for (const auto& relay : relays) {
      const auto& first = relays.front();
      if (!roots.insert(relay.root).second || relay.begin != 0 || relay.end != first.end ||
          relay.due != first.due) {
        return absl::InternalError(absl::StrCat(
            "expected one relay from each device, as long and due at the same time as the others, "
            "found one of bytes [",
            relay.begin, ", ", relay.end, ") from ", ToString(devices_[relay.root])));
      }
      RETURN_IF_ERROR(ProveHops(relay));
    }
    if (roots == wanted_) return absl::OkStatus();
    return absl::InternalError(absl::StrCat("expected a relay from each of ", wanted_.size(),
                                            " devices in groups, found ", roots.size()));
  }

 private:
  template <class RelayOfMove>
  absl::Status ProveHops(const RelayOfMove& relay) const {
    for (const auto& hop : HopsOf(move_, relay)) {
      if (hop.from == relay.root && group_of_[hop.to] == group_of_[relay.root]) continue;
      return absl::InternalError(
          absl::StrCat("expected hops from the root, ", ToString(devices_[relay.root]),
                       ", to others of its group, found one from ", ToString(devices_[hop.from]),
                       " to ", ToString(devices_[hop.to])));
    }
    return absl::OkStatus();
  }

  const Move& move_;
  const std::vector<DeviceId>& devices_;
  std::vector<DeviceRank> group_of_;  // the first of its group; -1: in none
  std::set<DeviceRank> wanted_;       // as roots
};

template <class Move>
absl::Status ProveOf(const Move& whole, bool overwrites_source) {
  for (size_t c = 0; c < whole.courses().size(); ++c) {
    const Course<Move>& course = whole.courses()[c];
    for (size_t k = 0; k < course.steps.size(); ++k) {
      const auto& step = course.steps[k];
      if (!step.collective.has_value()) continue;
      const std::string where =
          absl::StrCat("course ", c, ", step ", k, ", ", StepCollectiveName(*step.collective));
      if (overwrites_source) {
        return absl::InternalError(absl::StrCat(
            where, ": expected another storage for the destination, or a shadow of it"));
      }
      if (Reduces(*step.collective)) continue;
      const auto gather = FindStepCollective(step.move->tensors(), step.reduction);
      if (!gather.has_value()) return absl::InternalError(where + ": expected one, found none");
      RETURN_IF_ERROR(At(where, RelaysOfGather(*step.move, *gather).Prove()));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ProveCollectives(const Plan& plan) {
  return ProveOf(plan, plan.shared_storage() && plan.binding() == BindingMode::kInPlace);
}

absl::Status ProveCollectives(const WorkerPart& part) {
  return ProveOf(part, part.spec().shared_storage && part.spec().binding == BindingMode::kInPlace);
}

}  // namespace crossmesh
