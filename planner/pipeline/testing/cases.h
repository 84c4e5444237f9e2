#pragma once

#include <cstdint>
#include <cstdlib>

#include <absl/strings/numbers.h>

namespace crossmesh {

// How many random cases a test has: as many as CROSSMESH_CASES says, by hand.
inline uint64_t CasesOr(uint64_t otherwise) {
  const char* text = std::getenv("CROSSMESH_CASES");
  uint64_t cases = 0;
  return text != nullptr && absl::SimpleAtoi(text, &cases) ? cases : otherwise;
}

}  // namespace crossmesh
