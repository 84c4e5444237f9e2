#include "planner/network/demands.h"

#include "planner/network/pair_table.h"

#include <algorithm>
#include <iterator>
#include <numeric>

namespace crossmesh {
namespace {

// Maps ids by `target_of` and interns the sorted result.
int32_t InternMapped(std::span<const int32_t> ids, std::span<const int32_t> target_of, IdSets& sets,
                     std::vector<int32_t>& scratch) {
  scratch.clear();
  for (const int32_t id : ids) {
    // Neighbours mostly share a target: leaving out repeats here keeps the sort short.
    if (scratch.empty() || scratch.back() != target_of[id]) scratch.push_back(target_of[id]);
  }
  std::sort(scratch.begin(), scratch.end());
  scratch.erase(std::unique(scratch.begin(), scratch.end()), scratch.end());
  return sets.Intern(scratch);
}

// Of a set of places all that are not in another set.
int32_t InternDifference(int32_t all, int32_t without, IdSets& sets,
                         std::vector<int32_t>& scratch) {
  scratch.clear();
  std::ranges::set_difference(sets[all], sets[without], std::back_inserter(scratch));
  // Nothing was taken away: interning once more would look the whole set up again.
  return scratch.size() == sets[all].size() ? all : sets.Intern(scratch);
}

HostGroups GroupBy(std::span<const int32_t> place_of_device, const Slicing& slicing) {
  HostGroups result;
  IdSets& sets = result.demands.sets;
  std::vector<int32_t> places_of_set(slicing.device_sets());
  std::vector<int32_t> scratch;
  for (int32_t set = 0; set < slicing.device_sets(); ++set) {
    places_of_set[set] = InternMapped(slicing.device_set(set), place_of_device, sets, scratch);
  }

  constexpr int32_t kUnseen = 0, kLocal = 1, kFirstGroup = 2;  // what the table holds
  const int64_t classes = static_cast<int64_t>(slicing.classes().size());
  PairTable seen(sets.size(), sets.size(), classes);
  result.group_of_class.reserve(classes);
  std::vector<Demand>& groups = result.demands.demands;
  for (const SliceClass& slice_class : slicing.classes()) {
    const int32_t holders = places_of_set[slice_class.holders];
    const int32_t receivers = places_of_set[slice_class.receivers];
    int32_t& entry = seen.At(holders, receivers);
    if (entry == kUnseen) {
      // Receivers at a place that holds the class are served inside it, which costs no port.
      const int32_t remote = InternDifference(receivers, holders, sets, scratch);
      entry = kLocal;
      if (!sets[remote].empty()) {
        entry = kFirstGroup + static_cast<int32_t>(groups.size());
        groups.push_back({.holders = holders, .receivers = remote});
      }
    }
    const int32_t group = entry == kLocal ? HostGroups::kNone : entry - kFirstGroup;
    result.group_of_class.push_back(group);
    if (group != HostGroups::kNone) groups[group].bytes += slice_class.bytes;
  }
  return result;
}

}  // namespace

std::vector<int64_t> BytesIn(const Demands& demands, size_t places) {
  std::vector<int64_t> bytes(places);
  for (const Demand& demand : demands.demands) {
    for (const int32_t place : demands.receivers(demand)) bytes[place] += demand.bytes;
  }
  return bytes;
}

int64_t LeastBytes(const Demands& demands) {
  int64_t bytes = 0;
  for (const Demand& demand : demands.demands) {
    bytes += demand.bytes * std::ssize(demands.receivers(demand));
  }
  return bytes;
}

HostGroups GroupByHosts(const TensorTable& tensors, const Slicing& slicing) {
  std::vector<int32_t> host_of_device(tensors.devices().size());
  for (size_t d = 0; d < host_of_device.size(); ++d) host_of_device[d] = tensors.host_of(d);
  return GroupBy(host_of_device, slicing);
}

HostGroups GroupByDevices(const TensorTable& tensors, const Slicing& slicing) {
  std::vector<int32_t> devices(tensors.devices().size());
  std::iota(devices.begin(), devices.end(), 0);
  return GroupBy(devices, slicing);
}

Demands RackDemands(const Demands& hosts, const HostNetwork& network) {
  Demands result;
  std::vector<int32_t> scratch;
  std::vector<int32_t> racks_of_set(hosts.sets.size());
  for (int32_t set = 0; set < hosts.sets.size(); ++set) {
    racks_of_set[set] = InternMapped(hosts.sets[set], network.rack_of_host, result.sets, scratch);
  }
  for (const Demand& demand : hosts.demands) {
    const int32_t holders = racks_of_set[demand.holders];
    const int32_t receivers =
        InternDifference(racks_of_set[demand.receivers], holders, result.sets, scratch);
    if (result.sets[receivers].empty()) continue;
    result.demands.push_back({holders, receivers, demand.bytes});
  }
  return result;
}

}  // namespace crossmesh
