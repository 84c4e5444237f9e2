#include "common/testing/random_cases.h"

#include <algorithm>
#include <cstdlib>

#include <absl/strings/numbers.h>

namespace crossmesh {
namespace {

constexpr bool HasSanitizer() {
#if defined(__has_feature)
  return __has_feature(thread_sanitizer) || __has_feature(address_sanitizer);
#else
  return false;
#endif
}

}  // namespace

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  uint64_t value = 0;
  return text != nullptr && absl::SimpleAtoi(text, &value) ? value : otherwise;
}

int64_t RandomCases(int64_t count) {
  if (HasSanitizer()) count = std::max<int64_t>(count / 4, 1);
  return static_cast<int64_t>(FromEnvironment("CROSSMESH_CASES", count));
}

}  // namespace crossmesh
