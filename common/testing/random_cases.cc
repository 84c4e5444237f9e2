#include "common/testing/random_cases.h"

#include "common/testing/sanitizers.h"

#include <algorithm>
#include <cstdlib>

#include <absl/strings/numbers.h>

namespace crossmesh {
namespace {

constexpr int64_t kShare = kHasThreadSanitizer ? 4 : kHasAddressSanitizer ? 2 : 1;

}  // namespace

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  uint64_t value = 0;
  return text != nullptr && absl::SimpleAtoi(text, &value) ? value : otherwise;
}

int64_t RandomCases(int64_t count) {
  return static_cast<int64_t>(
      FromEnvironment("CROSSMESH_CASES", std::max<int64_t>(count / kShare, 1)));
}

}  // namespace crossmesh
