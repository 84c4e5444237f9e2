#include "planner/network/probe_schedule.h"

#include <algorithm>
#include <utility>

#include <absl/container/flat_hash_set.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr int kPartners = 2;

// The ports of one host: [begin, end).
struct HostPorts {
  int begin = 0;
  int end = 0;
  int count() const { return end - begin; }
};

std::vector<HostPorts> GroupByHost(std::span<const ProbePort> ports) {
  std::vector<HostPorts> hosts;
  for (int i = 0; i < std::ssize(ports); ++i) {
    if (i == 0 || ports[i].host != ports[i - 1].host) hosts.push_back({.begin = i, .end = i});
    hosts.back().end = i + 1;
  }
  return hosts;
}

class Pairing {
 public:
  Pairing(std::span<const ProbePort> ports, const std::vector<HostPorts>& hosts)
      : ports_(ports), hosts_(hosts) {}

  // The partner of the NIC in place `place` of a host, on the host that is `step` further on; with
  // one other host only, a further step is to its next NIC.
  int PartnerOf(int host, int place, int step) const {
    const int count = static_cast<int>(hosts_.size());
    const bool one_other = count == 2;
    const int distance = one_other ? 1 : step;
    const HostPorts& other = hosts_[((host + distance) % count + count) % count];
    int partner = place % other.count();
    const ProbePort& own = ports_[hosts_[host].begin + place];
    for (int i = 0; i < other.count(); ++i) {
      if (ports_[other.begin + i].nic == own.nic) partner = i;
    }
    if (one_other) {
      const int turn = step > 0 ? step - 1 : step + 1;
      partner = ((partner + turn) % other.count() + other.count()) % other.count();
    }
    return other.begin + partner;
  }

 private:
  const std::span<const ProbePort> ports_;
  const std::vector<HostPorts>& hosts_;
};

// Each once, in the order in which they are wanted.
std::vector<ProbeLink> LinksOf(std::span<const ProbePort> ports,
                               const std::vector<HostPorts>& hosts) {
  const Pairing pairing(ports, hosts);
  const int places = std::ranges::max_element(hosts, {}, &HostPorts::count)->count();
  std::vector<ProbeLink> links;
  absl::flat_hash_set<std::pair<int, int>> known;
  const auto add = [&](int from, int to) {
    if (known.emplace(from, to).second) links.push_back({from, to});
  };
  // Nearest partners first, and of all hosts before the next step: so the rounds fill evenly.
  for (int step = 1; step <= kPartners; ++step) {
    for (int place = 0; place < places; ++place) {
      for (int host = 0; host < std::ssize(hosts); ++host) {
        if (place >= hosts[host].count()) continue;
        const int own = hosts[host].begin + place;
        add(own, pairing.PartnerOf(host, place, step));
        add(pairing.PartnerOf(host, place, -step), own);
      }
    }
  }
  return links;
}

}  // namespace

std::string ToString(const ProbePort& port) { return absl::StrCat(port.host, "/", port.nic); }

std::vector<std::vector<ProbeLink>> ScheduleProbes(std::span<const ProbePort> ports) {
  const std::vector<HostPorts> hosts = GroupByHost(ports);
  if (hosts.size() < 2) return {};
  std::vector<int> host_of(ports.size());
  for (int host = 0; host < std::ssize(hosts); ++host) {
    std::fill(host_of.begin() + hosts[host].begin, host_of.begin() + hosts[host].end, host);
  }
  std::vector<ProbeLink> left = LinksOf(ports, hosts);
  std::vector<std::vector<ProbeLink>> rounds;
  while (!left.empty()) {
    std::vector<ProbeLink>& round = rounds.emplace_back();
    std::vector<bool> sends(hosts.size()), receives(hosts.size());
    // Greedy: each round takes every link whose two ends are still free in it.
    std::erase_if(left, [&](const ProbeLink& link) {
      const int from = host_of[link.from], to = host_of[link.to];
      if (sends[from] || receives[to]) return false;
      sends[from] = receives[to] = true;
      round.push_back(link);
      return true;
    });
  }
  return rounds;
}

}  // namespace crossmesh
