#pragma once

#include "common/plan/step_kind.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>

namespace crossmesh {

// Of courses, however they run: a worker has one, which all of its runners and replayers count in.
// Read on the loop.
struct CourseCounters {
  // By kind: steps of instances that have moved; with reduced bytes, since creation.
  std::array<int64_t, kStepKinds> steps_moved = {};
  int64_t reduced_bytes = 0;
  int64_t array_bytes = 0;       // between steps, now
  int64_t array_bytes_peak = 0;  // the most at a time

  void CountSteps(StepKind kind, int64_t steps = 1) {
    steps_moved[static_cast<size_t>(kind)] += steps;
  }
  int64_t all_steps_moved() const {
    return std::accumulate(steps_moved.begin(), steps_moved.end(), int64_t{0});
  }
  void AddArrays(int64_t bytes) {
    array_bytes += bytes;
    array_bytes_peak = std::max(array_bytes_peak, array_bytes);
  }
};

}  // namespace crossmesh
