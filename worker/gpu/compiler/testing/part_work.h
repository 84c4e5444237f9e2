#pragma once

#include "worker/gpu/compiler/compiled_part.h"

#include <cstdint>

namespace crossmesh {

// What one GPU has to do in an execution of its part. A step is one group of messages, if it has
// any, and a launch each for what it packs, unpacks and copies (gpu_executor_calls_test.cc compares
// that with the stand-in's log of calls).
struct PartWork {
  int64_t steps = 0;
  int64_t bytes = 0;  // sent and received
  int64_t messages = 0;
  int64_t groups = 0;
  int64_t launches = 0;  // where nothing is converted

  double gibibytes() const;
};

PartWork WorkOf(const CompiledPart& part);

}  // namespace crossmesh
