#include "common/base/check.h"

#include <cstdio>
#include <cstdlib>
#include <string>

namespace crossmesh::internal {

CheckFailure::CheckFailure(const char* file, int line, const char* condition) {
  stream_ << file << ":" << line << ": check failed: " << condition << " ";
}

CheckFailure::~CheckFailure() {
  // One write, so that lines of several threads do not mix.
  const std::string line = stream_.str() + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
  std::fflush(stderr);
  std::abort();
}

}  // namespace crossmesh::internal
