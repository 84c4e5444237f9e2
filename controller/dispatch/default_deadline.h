#pragma once

#include <absl/time/time.h>

namespace crossmesh {

// The time that is given to what is predicted to take `predicted_seconds`, unless the client says
// otherwise: predictions know links, not how busy hosts are.
inline absl::Duration DefaultDeadline(double predicted_seconds) {
  return 3 * absl::Seconds(predicted_seconds) + absl::Seconds(30);
}

}  // namespace crossmesh
