#include "common/testing/random_cases.h"

#include <algorithm>
#include <cstdlib>

#include <absl/strings/numbers.h>

namespace crossmesh {
namespace {

#if defined(__has_feature)
constexpr int64_t kShare = __has_feature(thread_sanitizer)    ? 4
                           : __has_feature(address_sanitizer) ? 2
                                                              : 1;
#else
constexpr int64_t kShare = 1;
#endif

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
