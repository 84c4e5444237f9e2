#include "controller/service/random_token.h"

#include "common/base/check.h"

#include <sys/random.h>

namespace crossmesh {

std::string NewToken() {
  std::string token(16, '\0');
  // So few bytes come whole, and without a wait once the system is up.
  CHECK_EQ(getrandom(token.data(), token.size(), 0), std::ssize(token));
  return token;
}

}  // namespace crossmesh
