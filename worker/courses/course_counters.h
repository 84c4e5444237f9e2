#pragma once

#include <cstdint>

namespace crossmesh {

// Of all tasks of a runner. Read on the loop.
struct CourseCounters {
  int64_t steps_moved = 0;  // of instances; with this and the next, since creation
  int64_t reduced_bytes = 0;
  int64_t array_bytes = 0;  // between steps, now
};

}  // namespace crossmesh
