#include "planner/reshard/avoid_links.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// The trees by which the receivers of one relay are reached.
class Detour {
 public:
  Detour(const RoutingProblem& problem, const HostLinks& failed, std::span<const Hop> hops)
      : problem_(problem), failed_(failed) {
    for (const Hop& hop : hops) unreached_.push_back(hop);
  }

  struct Tree {
    DeviceRank root = 0;
    std::vector<Hop> hops;
  };

  // False: some receivers are reached from no holder.
  bool Find(const Relay& relay) {
    Grow(relay.root);
    for (const DeviceRank holder : problem_.slicing.holders(relay.slice_class)) {
      if (unreached_.empty()) break;
      if (holder != relay.root) Grow(holder);
    }
    return unreached_.empty();
  }
  const std::vector<Tree>& trees() const { return trees_; }

 private:
  bool Works(DeviceRank from, DeviceRank to) const {
    return !failed_.contains({problem_.tensors.host_of(from), problem_.tensors.host_of(to)});
  }

  // The device that sends to `hop.to`: as before if that works; else of those that are reached the
  // one with the fewest to send to.
  std::optional<DeviceRank> SenderOf(const Hop& hop, const Tree& tree) const {
    if (sends_to_.contains(hop.from) && Works(hop.from, hop.to)) return hop.from;
    std::optional<DeviceRank> best;
    const auto consider = [&](DeviceRank device) {
      if (!Works(device, hop.to)) return;
      if (!best.has_value() || sends_to_.at(device) < sends_to_.at(*best)) best = device;
    };
    consider(tree.root);
    for (const Hop& earlier : tree.hops) consider(earlier.to);
    return best;
  }

  // A tree from this root to all that it reaches.
  void Grow(DeviceRank root) {
    Tree tree{.root = root};
    sends_to_ = {{root, 0}};
    for (bool grown = true; grown;) {
      grown = false;
      std::vector<Hop> left;
      for (const Hop& hop : unreached_) {
        const std::optional<DeviceRank> sender = SenderOf(hop, tree);
        if (!sender.has_value()) {
          left.push_back(hop);
          continue;
        }
        ++sends_to_[*sender];
        sends_to_[hop.to] = 0;
        tree.hops.push_back({.from = *sender, .to = hop.to});
        grown = true;
      }
      unreached_ = std::move(left);
    }
    if (!tree.hops.empty()) trees_.push_back(std::move(tree));
  }

  const RoutingProblem& problem_;
  const HostLinks& failed_;
  std::vector<Hop> unreached_;
  std::map<DeviceRank, int> sends_to_;  // of the tree that grows: to how many, by sender
  std::vector<Tree> trees_;
};

bool UsesAny(const HostLinks& failed, const TensorTable& tensors, std::span<const Hop> hops) {
  return std::ranges::any_of(hops, [&](const Hop& hop) {
    return failed.contains({tensors.host_of(hop.from), tensors.host_of(hop.to)});
  });
}

}  // namespace

Routes AvoidLinks(const RoutingProblem& problem, const HostLinks& failed, Routes routes) {
  const auto uses = [&](const Relay& relay) {
    return UsesAny(failed, problem.tensors, routes.HopsOf(relay));
  };
  if (failed.empty() || std::ranges::none_of(routes.relays, uses)) return routes;
  Routes around{.search = routes.search,
                .model_seconds = routes.model_seconds,
                .planned_seconds = routes.planned_seconds};
  int64_t changed = 0, kept = 0;
  const auto copy = [&](const Relay& relay, DeviceRank root, std::span<const Hop> hops) {
    Relay same = relay;
    same.root = root;
    same.hop_count = 0;
    around.BeginRelay(same);
    for (const Hop& hop : hops) around.AddHop(hop.from, hop.to);
  };
  for (const Relay& relay : routes.relays) {
    if (!uses(relay)) {
      copy(relay, relay.root, routes.HopsOf(relay));
      continue;
    }
    Detour detour(problem, failed, routes.HopsOf(relay));
    if (!detour.Find(relay)) {
      ++kept;
      copy(relay, relay.root, routes.HopsOf(relay));
      continue;
    }
    ++changed;
    for (const Detour::Tree& tree : detour.trees()) copy(relay, tree.root, tree.hops);
  }
  absl::StrAppend(&around.search, around.search.empty() ? "" : "; ", changed,
                  " relays around failed links, ", kept, " over them for want of another way");
  return around;
}

}  // namespace crossmesh
