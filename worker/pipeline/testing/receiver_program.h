#pragma once

#include "worker/pipeline/worker_program.h"

#include <cstdint>

namespace crossmesh {

// A rank that gets a message for each forward op, and has room for two of them.
inline WorkerProgram ReceiverProgram() {
  WorkerProgram program{.samples = {1, 1, 1}};
  program.transfers.push_back({.from = 0,
                               .to = 1,
                               .samples = 1,
                               .buffers = 2,
                               .receives = true,
                               .microbatches = {0, 1, 2}});
  program.ranks.push_back({.rank = 4});
  for (int32_t m = 0; m < 3; ++m) {
    program.ranks[0].ops.push_back(
        {.op = {.stage = 1, .microbatch = m}, .samples = 1, .inputs = {{0, m}}});
    program.ranks[0].actions.push_back({.op = m});
  }
  return program;
}

}  // namespace crossmesh
