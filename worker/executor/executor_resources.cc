#include "worker/executor/executor_resources.h"

#include "common/event_loop/event_loop.h"

namespace crossmesh {

void StepRequests::Post() {
  loop_.Post([this] {
    requested_ = false;
    step_();
  });
}

}  // namespace crossmesh
