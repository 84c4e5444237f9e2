#include "common/rpc/controller_route.h"

#include "common/rpc/address.h"
#include "common/rpc/not_leader.h"

#include <algorithm>
#include <optional>

namespace crossmesh {
namespace {

bool LeadsOn(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsCancelled(status) ||
         absl::IsDeadlineExceeded(status);
}

}  // namespace

void ControllerRoute::Ended(const std::string& address, const absl::Status& status) {
  if (address != current_ || !LeadsOn(status)) return;
  const std::optional<std::string> leader = LeaderNamedBy(status);
  if (leader.has_value() && *leader != address && ParseRpcAddress(*leader).ok()) {
    current_ = *leader;
    const auto listed = std::ranges::find(addresses_, current_);
    if (listed != addresses_.end()) next_ = listed - addresses_.begin() + 1;
    return;
  }
  current_ = addresses_[next_ % addresses_.size()];
  next_ = next_ % addresses_.size() + 1;
}

}  // namespace crossmesh
