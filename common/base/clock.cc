#include "common/base/clock.h"

#include <chrono>

namespace crossmesh {

absl::Duration RealClock::Monotonic() const {
  return absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

}  // namespace crossmesh
