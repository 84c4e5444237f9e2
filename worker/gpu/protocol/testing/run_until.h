#pragma once

#include "common/event_loop/event_loop.h"
#include "common/testing/patience.h"

#include <source_location>

#include <absl/functional/function_ref.h>
#include <absl/time/time.h>

namespace crossmesh {

// Runs the loop until it is so, with Patience.
inline void RunUntil(EventLoop& loop, absl::FunctionRef<bool()> condition,
                     std::source_location where = std::source_location::current()) {
  const Patience patience(where);
  while (!condition()) {
    patience.Check();
    loop.RunOnce(absl::Seconds(1));
  }
}

}  // namespace crossmesh
