#include "planner/network/routing.h"

#include "common/base/status_macros.h"
#include "planner/network/pair_table.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// How much longer a list must be for a search in it to be cheaper than a walk along it.
constexpr int64_t kSearchRatio = 16;

struct Count {
  absl::string_view noun;
  int64_t needed = 0;
  int64_t most = 0;
};

absl::Status CheckCount(absl::string_view strategy, const Count& count) {
  if (count.needed <= count.most) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("strategy ", strategy, " needs ", count.needed,
                                                   " ", count.noun, " or more; a plan has at most ",
                                                   count.most));
}

// Devices that are in both ascending lists.
int64_t CountCommon(std::span<const DeviceRank> a, std::span<const DeviceRank> b) {
  if (a.size() > b.size()) std::swap(a, b);
  if (a.empty() || a.back() < b.front() || b.back() < a.front()) return 0;
  if (std::ssize(a) * kSearchRatio < std::ssize(b)) {
    return std::ranges::count_if(a, [b](DeviceRank d) { return std::ranges::binary_search(b, d); });
  }
  int64_t common = 0;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const DeviceRank left = a[i], right = b[j];
    if (left == right) ++common;
    if (left <= right) ++i;
    if (right <= left) ++j;
  }
  return common;
}

}  // namespace

absl::Status CheckRelayCount(absl::string_view strategy, int64_t relays) {
  return CheckCount(strategy, {"relays", relays, Plan::kRelaysMax});
}

absl::Status CheckHopCount(absl::string_view strategy, int64_t hops) {
  return CheckCount(strategy, {"hops", hops, Plan::kHopsMax});
}

int64_t LeastHops(const Slicing& slicing, ClassIndex slice_class) {
  const SliceClass& sets = slicing.classes()[slice_class];
  if (sets.holders == sets.receivers) return 0;
  const std::span<const DeviceRank> receivers = slicing.device_set(sets.receivers);
  return std::ssize(receivers) - CountCommon(slicing.device_set(sets.holders), receivers);
}

absl::Status CheckClassCounts(absl::string_view strategy, const Slicing& slicing) {
  int64_t relays = 0, hops = 0, copies = 0;
  const auto classes = static_cast<ClassIndex>(slicing.classes().size());
  for (ClassIndex c = 0; c < classes; ++c) {
    const int64_t least = LeastHops(slicing, c);
    hops += least;
    relays += least > 0 ? 1 : 0;
    copies += std::ssize(slicing.receivers(c)) - least;
    RETURN_IF_ERROR(CheckHopCount(strategy, hops));
    RETURN_IF_ERROR(CheckCount(strategy, {"copies", copies, Plan::kCopiesMax}));
  }
  return CheckRelayCount(strategy, relays);
}

void AssignPlacesAndPeriods(const TensorTable& tensors, Routes& routes) {
  const int64_t devices = static_cast<int64_t>(tensors.devices().size());
  PairTable next_place(devices, devices, static_cast<int64_t>(routes.hops.size()));
  std::vector<int32_t> hops_from_root(devices);
  for (const Relay& relay : routes.relays) {
    hops_from_root[relay.root] = 0;
    for (int64_t h = relay.first_hop; h < relay.first_hop + relay.hop_count; ++h) {
      Hop& hop = routes.hops[h];
      hop.place = next_place.At(hop.from, hop.to)++;
      hop.period = hops_from_root[hop.from];
      hops_from_root[hop.to] = hop.period + 1;
    }
  }
}

std::vector<LocalCopy> CopiesInPlace(const Slicing& slicing) {
  std::vector<LocalCopy> copies;
  std::vector<DeviceRank> devices;
  const ClassIndex classes = static_cast<ClassIndex>(slicing.classes().size());
  for (ClassIndex c = 0; c < classes; ++c) {
    devices.clear();
    std::ranges::set_intersection(slicing.holders(c), slicing.receivers(c),
                                  std::back_inserter(devices));
    for (const DeviceRank device : devices) copies.push_back({.slice_class = c, .device = device});
  }
  return copies;
}

std::span<const DeviceRank> DevicesOnHost(std::span<const DeviceRank> devices, HostRank host,
                                          const TensorTable& tensors) {
  // The usual case, with all devices on one host, needs no search.
  if (tensors.host_of(devices.front()) == host && tensors.host_of(devices.back()) == host) {
    return devices;
  }
  const auto host_of = [&tensors](DeviceRank device) { return tensors.host_of(device); };
  const auto found = std::ranges::equal_range(devices, host, {}, host_of);
  return {found.begin(), found.end()};
}

}  // namespace crossmesh
