#include "planner/reshard/published/send_recv.h"

#include "common/base/status_macros.h"
#include "planner/reshard/published/choices.h"
#include "planner/reshard/published/slices.h"

#include <cstdint>
#include <iterator>
#include <vector>

namespace crossmesh {

absl::StatusOr<Routes> RouteBySendRecv(const RoutingProblem& problem) {
  constexpr absl::string_view kName = "send_recv";
  ASSIGN_OR_RETURN(const Slices slices, Slices::List(kName, problem.tensors, problem.slicing));
  int64_t relays = 0;
  for (const Slice& slice : slices.all()) relays += std::ssize(slices.receivers(slice));
  RETURN_IF_ERROR(CheckRelayCount(kName, relays));
  std::vector<int64_t> sent(problem.tensors.devices().size());
  Routes routes;
  for (const Slice& slice : slices.all()) {
    for (const DeviceRank receiver : slices.receivers(slice)) {
      // As the baseline of arXiv 2211.05322 in its released code: load by device, not by NIC.
      const DeviceRank sender = LeastLoaded(slices.holders(slice), sent);
      sent[sender] += slice.bytes();
      routes.BeginRelay({.slice_class = slice.slice_class,
                         .root = sender,
                         .begin = slice.begin,
                         .end = slice.end});
      routes.AddHop(sender, receiver);
    }
  }
  return routes;
}

}  // namespace crossmesh
