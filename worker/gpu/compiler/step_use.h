#pragma once

#include <algorithm>
#include <cstdint>

namespace crossmesh {

// Instead of the index of a step: no step.
inline constexpr int32_t kNoStep = -1;

// The last steps whose transfers and whose unpacks used some bytes of staging.
struct StepUse {
  int32_t wire = kNoStep;
  int32_t unpack = kNoStep;

  int32_t last() const { return std::max(wire, unpack); }
  // To the later of both.
  void Join(const StepUse& other) {
    wire = std::max(wire, other.wire);
    unpack = std::max(unpack, other.unpack);
  }
  friend bool operator==(const StepUse&, const StepUse&) = default;
};

}  // namespace crossmesh
