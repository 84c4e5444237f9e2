#pragma once

#include <cstdint>

#include <absl/time/time.h>

namespace crossmesh {

// The fencing number of a controller that begins now: microseconds since 2020. A store that
// remembers the numbers before it makes it greater than those where the clock has gone back.
inline uint64_t EpochAt(absl::Time now) {
  return static_cast<uint64_t>(absl::ToInt64Microseconds(
      now - absl::FromCivil(absl::CivilDay(2020, 1, 1), absl::UTCTimeZone())));
}

}  // namespace crossmesh
