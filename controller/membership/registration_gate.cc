#include "controller/membership/registration_gate.h"

#include <algorithm>

namespace crossmesh {

std::optional<absl::Duration> RegistrationGate::Admit(absl::Duration now) {
  const double filled = absl::ToDoubleSeconds(now - filled_) * options_.per_second;
  tokens_ = std::min(options_.burst, tokens_ + filled);
  filled_ = now;
  if (tokens_ >= 1) {
    tokens_ -= 1;
    return std::nullopt;
  }
  line_ends_ = std::max(line_ends_, now) + absl::Seconds(1 / options_.per_second);
  line_ends_ = std::min(line_ends_, now + options_.wait_max);
  return line_ends_ - now;
}

}  // namespace crossmesh
