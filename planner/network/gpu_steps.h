#pragma once

#include "common/plan/plan.h"
#include "planner/network/gpu_network.h"
#include "planner/network/routing.h"

#include <cstdint>
#include <span>
#include <vector>

namespace crossmesh {

// How relays are cut: the two settings of a plan by which both ends of a hop know in which step a
// chunk is.
struct StepSizes {
  int64_t chunk_bytes = 0;
  int32_t periods = 0;
};

// What an execution of relays between GPUs is predicted to be like.
struct StepsPrediction {
  double seconds = 0;
  int64_t steps = 0;
  int64_t messages = 0;        // of all devices
  int64_t message_bytes = 0;   // of all messages
  int64_t step_bytes = 0;      // the most that a device sends and receives in one step
  double busiest_seconds = 0;  // of the port or the GPU with most to do, at its full rate
  int64_t copied_bytes = 0;    // the most that one GPU's kernels pack, unpack and copy
};

// GPUs go step by step: all that is due in a step is one group of messages between GPUs, and a step
// ends when its last message is there. So a step takes as long as the fullest of its ports, each
// NIC, link and rack being one, as the kernels that pack and unpack, or as the thread that issues
// it takes (GpuCosts), whichever is longest; the execution takes as long as its steps one after the
// other, one more for the first pack and the last unpack, and latencies.
//
// `copied` has the bytes that each device copies to itself. Cost: linear in the chunks of all hops,
// or in hops where there are too many chunks; then all steps are taken to be alike.
StepsPrediction PredictSteps(const GpuNetwork& network, const Routes& routes,
                             std::span<const int64_t> copied, const StepSizes& sizes);

// Sizes with which the execution is predicted to be shortest among those that fit into a GPU's
// staging: few long steps make little of what a step costs, many short ones end sooner after the
// last hop. `chunk_bytes`: 0, or what a user wants. Cost: some ten predictions.
StepSizes ChooseStepSizes(const GpuNetwork& network, const Routes& routes,
                          std::span<const int64_t> copied, int64_t chunk_bytes);

}  // namespace crossmesh
