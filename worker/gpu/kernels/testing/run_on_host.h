#pragma once

#include "worker/gpu/kernels/device_code.h"

#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

namespace crossmesh {

// Runs one block of threads phase by phase, thread after thread. What a phase did must not depend
// on the order of the threads, so blocks with odd numbers take them backwards.
template <class Body, int phase = 0>
void RunPhasesOnHost(int32_t block, const typename Body::Arguments& arguments,
                     typename Body::Shared& shared,
                     std::vector<typename Body::Registers>& registers) {
  for (int32_t i = 0; i < Body::kThreads; ++i) {
    const int32_t thread = block % 2 == 0 ? i : Body::kThreads - 1 - i;
    Body::template Run<phase>({.block = block, .thread = thread}, arguments, shared,
                              registers[thread]);
  }
  if constexpr (phase + 1 < Body::kPhases) {
    RunPhasesOnHost<Body, phase + 1>(block, arguments, shared, registers);
  }
}

// Runs a kernel's body as the GPU would, on this thread.
template <class Body>
void RunOnHost(int32_t blocks, const typename Body::Arguments& arguments) {
  const auto shared = std::make_unique<typename Body::Shared>();
  std::vector<typename Body::Registers> registers(Body::kThreads);
  for (int32_t block = 0; block < blocks; ++block) {
    // What a block finds there is what another one left.
    std::memset(static_cast<void*>(shared.get()), 0xA5, sizeof(typename Body::Shared));
    RunPhasesOnHost<Body>(block, arguments, *shared, registers);
  }
}

}  // namespace crossmesh
