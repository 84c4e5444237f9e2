#include "tests/benchmark/measure.h"

#include "common/base/check.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <ctime>

namespace crossmesh {

double MedianOf(std::vector<double> values) {
  CHECK(!values.empty()) << "a median of nothing";
  std::ranges::sort(values);
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

double SecondsOf(absl::FunctionRef<void()> work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double ThreadSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace crossmesh
