#include "common/plan/plan_warnings.h"

#include "common/base/format.h"

#include <cstddef>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

namespace crossmesh {
namespace {

constexpr size_t kHostsNamedMax = 16;

}  // namespace

std::vector<std::string> PlanWarnings(const TensorTable& tensors, const Topology& topology) {
  if (topology.hosts().empty()) return {};
  std::vector<std::string> missing;
  size_t unnamed = 0;
  for (const std::string& host : tensors.hosts()) {
    if (topology.FindHost(host) != nullptr) continue;
    if (missing.size() < kHostsNamedMax) {
      missing.push_back(host);
    } else {
      ++unnamed;
    }
  }
  if (missing.empty()) return {};
  return {absl::StrCat("the network description lacks ", absl::StrJoin(missing, ", "),
                       unnamed > 0 ? absl::StrCat(" and ", unnamed, " more") : "", ": ",
                       FormatRate(static_cast<double>(topology.assumed_bytes_per_second())),
                       " per host and direction assumed")};
}

}  // namespace crossmesh
