#include "common/base/backoff.h"

#include <algorithm>

namespace crossmesh {

absl::Duration Backoff::Next() {
  std::uniform_real_distribution<double> part(0, 1);
  const absl::Duration pause = ceiling_ * part(random_);
  ceiling_ = std::min(options_.max, ceiling_ * 2);
  return pause;
}

}  // namespace crossmesh
