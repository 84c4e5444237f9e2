#include "controller/service/random_token.h"

#include "common/base/check.h"

#include <sys/random.h>

namespace crossmesh {

uint64_t RandomTokenWord() {
  uint64_t word = 0;
  // So few bytes come whole, and without a wait once the system is up.
  CHECK_EQ(getrandom(&word, sizeof(word), 0), static_cast<ssize_t>(sizeof(word)));
  return word;
}

}  // namespace crossmesh
