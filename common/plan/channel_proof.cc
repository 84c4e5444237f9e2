#include "common/plan/channel_proof.h"

#include "common/base/status_macros.h"

#include <numeric>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr int32_t kNoHop = -1;

class ChannelProver {
 public:
  ChannelProver(const Plan& plan, const Channels& channels)
      : plan_(plan), channels_(channels), relay_of_hop_(plan.hops().size()) {
    for (size_t r = 0; r < plan.relays().size(); ++r) {
      const Relay& relay = plan.relays()[r];
      for (int64_t h = relay.first_hop; h < relay.first_hop + relay.hop_count; ++h) {
        relay_of_hop_[h] = static_cast<int32_t>(r);
      }
    }
  }

  absl::Status Prove() {
    RETURN_IF_ERROR(OrderChannels());
    FindProviders();
    return ProveAcyclic();
  }

 private:
  // Fills in before_ from the places.
  absl::Status OrderChannels() {
    const std::vector<Hop>& hops = plan_.hops();
    std::vector<int32_t> first(channels_.ends.size() + 1, 0);
    for (const ChannelIndex c : channels_.of_hop) ++first[c + 1];
    std::partial_sum(first.begin(), first.end(), first.begin());
    std::vector<int32_t> order(hops.size(), kNoHop);  // hops by channel and place
    for (size_t h = 0; h < hops.size(); ++h) {
      const ChannelIndex c = channels_.of_hop[h];
      const int32_t count = first[c + 1] - first[c];
      if (hops[h].place >= count) {
        return Error(h, absl::StrCat("places below its ", count, " hops"),
                     absl::StrCat("place ", hops[h].place));
      }
      int32_t& at = order[first[c] + hops[h].place];
      if (at != kNoHop) {
        return Error(
            h, "every place once",
            absl::StrCat("place ", hops[h].place, " for relay ", relay_of_hop_[at], " as well"));
      }
      at = static_cast<int32_t>(h);
    }
    before_.assign(hops.size(), kNoHop);
    for (size_t i = 1; i < order.size(); ++i) {
      if (hops[order[i]].place > 0) before_[order[i]] = order[i - 1];
    }
    return absl::OkStatus();
  }

  // Fills in provider_: the hop of the same relay that ends where a hop starts.
  void FindProviders() {
    provider_.assign(plan_.hops().size(), kNoHop);
    std::vector<int32_t> hop_to(plan_.tensors().devices().size(), kNoHop);
    for (const Relay& relay : plan_.relays()) {
      hop_to[relay.root] = kNoHop;
      for (int64_t h = relay.first_hop; h < relay.first_hop + relay.hop_count; ++h) {
        provider_[h] = hop_to[plan_.hops()[h].from];
        hop_to[plan_.hops()[h].to] = static_cast<int32_t>(h);
      }
    }
  }

  // Orders where no hop waits for a later one cannot be cyclic; planners mostly make such ones. For
  // others, takes away hops that wait for nothing until none is left.
  absl::Status ProveAcyclic() {
    const auto count = static_cast<int32_t>(plan_.hops().size());
    int32_t hop = 0;
    while (hop < count && before_[hop] < hop && provider_[hop] < hop) ++hop;
    if (hop == count) return absl::OkStatus();

    // The hops that wait for a hop: after_ in its channel, and a list of those in its relay.
    std::vector<int32_t> after(count, kNoHop);
    std::vector<int32_t> first_fed(count, kNoHop);
    std::vector<int32_t> next_fed(count, kNoHop);
    std::vector<int8_t> waits(count, 0);
    std::vector<int32_t> free;
    for (int32_t h = 0; h < count; ++h) {
      if (before_[h] != kNoHop) {
        after[before_[h]] = h;
        ++waits[h];
      }
      if (provider_[h] != kNoHop) {
        next_fed[h] = first_fed[provider_[h]];
        first_fed[provider_[h]] = h;
        ++waits[h];
      }
      if (waits[h] == 0) free.push_back(h);
    }
    for (size_t i = 0; i < free.size(); ++i) {
      const auto release = [&](int32_t h) {
        if (h != kNoHop && --waits[h] == 0) free.push_back(h);
      };
      release(after[free[i]]);
      for (int32_t h = first_fed[free[i]]; h != kNoHop; h = next_fed[h]) release(h);
    }
    if (static_cast<int32_t>(free.size()) == count) return absl::OkStatus();
    return Circle(waits);
  }

  // Follows hops that wait from one to the next until one comes again.
  absl::Status Circle(const std::vector<int8_t>& waits) const {
    int32_t hop = 0;
    while (waits[hop] == 0) ++hop;
    std::vector<bool> seen(waits.size(), false);
    while (!seen[hop]) {
      seen[hop] = true;
      const int32_t before = before_[hop];
      hop = before != kNoHop && waits[before] > 0 ? before : provider_[hop];
    }
    return Error(hop, "an order in which no hop waits for itself",
                 absl::StrCat("a circle of hops through place ", plan_.hops()[hop].place));
  }

  absl::Status Error(size_t hop, absl::string_view expected, absl::string_view found) const {
    const auto [from, to] = channels_.ends[channels_.of_hop[hop]];
    const Relay& relay = plan_.relays()[relay_of_hop_[hop]];
    const std::vector<DeviceId>& devices = plan_.tensors().devices();
    return absl::InternalError(
        absl::StrCat("channel ", ToString(devices[from]), ">", ToString(devices[to]), ", relay ",
                     relay_of_hop_[hop], " of class ", relay.slice_class, ", bytes [", relay.begin,
                     ", ", relay.end, "): expected ", expected, ", found ", found));
  }

  const Plan& plan_;
  const Channels& channels_;
  std::vector<int32_t> relay_of_hop_;
  std::vector<int32_t> before_;    // [hop]: the one at the place before it, or kNoHop
  std::vector<int32_t> provider_;  // [hop]: the one that it forwards, or kNoHop at the root
};

}  // namespace

absl::Status ProveChannels(const Plan& plan, const Channels& channels) {
  return ChannelProver(plan, channels).Prove();
}

}  // namespace crossmesh
