#include "tests/benchmark/stand_in_time.h"

#include <algorithm>
#include <map>
#include <string>

namespace crossmesh {

int64_t CountCalls(const std::vector<StandInCall>& calls, absl::string_view name) {
  return std::ranges::count_if(calls, [&](const StandInCall& call) { return call.name == name; });
}

double StandInUs(const std::vector<StandInCall>& calls) {
  std::map<std::string, std::vector<int64_t>> ns_by_name;
  for (const StandInCall& call : calls) {
    ns_by_name[call.name].push_back(call.end_ns - call.start_ns);
  }
  double us = 0;
  for (auto& [name, ns] : ns_by_name) {
    const auto median = ns.begin() + std::ssize(ns) / 2;
    std::ranges::nth_element(ns, median);
    us += static_cast<double>(*median) * static_cast<double>(ns.size()) / 1e3;
  }
  return us;
}

}  // namespace crossmesh
