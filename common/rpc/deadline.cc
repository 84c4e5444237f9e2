#include "common/rpc/deadline.h"

#include <algorithm>

#include <grpc/support/time.h>

namespace crossmesh {

void SetDeadline(grpc::ClientContext& context, absl::Duration timeout) {
  const absl::Duration bounded = std::clamp(timeout, absl::Milliseconds(1), kRpcDeadlineMax);
  // A span, not a point of time: gRPC adds it to the monotonic clock, so that a jump of the wall
  // clock changes nothing.
  context.set_deadline(gpr_time_from_millis(absl::ToInt64Milliseconds(bounded), GPR_TIMESPAN));
}

}  // namespace crossmesh
