#include "planner/pipeline/planning/buffered_run.h"

#include "common/base/status_macros.h"
#include "planner/pipeline/memory.h"
#include "planner/pipeline/planning/transfer_buffers.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include <absl/status/status.h>

namespace crossmesh {
namespace {

// The same peak, beside what messages take in that profile.
std::vector<RankMemory> MemoryWith(const PipelineProfile& profile, std::vector<RankMemory> memory) {
  const std::vector<RankMemory> fixed = FixedMemory(profile);
  for (size_t rank = 0; rank < memory.size(); ++rank) {
    memory[rank].buffer_bytes = fixed[rank].buffer_bytes;
  }
  return memory;
}

}  // namespace

absl::StatusOr<BufferedRun> RunWithBuffers(const OpTable& ops, const MessageTraffic& traffic) {
  BufferedRun found;
  PipelineProfile profile = ops.profile();
  std::vector<RankMemory> peak = PeakMemory(ops);
  // Before it is run: what does not fit with one message of each does not fit at all.
  SetBufferBytes(traffic.plans, std::vector<int32_t>(traffic.plans.size(), 1), profile);
  RETURN_IF_ERROR(CheckMemory(ops, MemoryWith(profile, peak)));
  ASSIGN_OR_RETURN(found.run, SimulatePipeline(ops, traffic.model));
  found.needed = NeededBuffers(ops, found.run, traffic.samples, traffic.plans);
  found.buffers = found.needed;
  FitBuffers(peak, traffic.plans, found.buffers, profile);
  found.memory = MemoryWith(profile, std::move(peak));
  if (found.buffers == found.needed) return found;
  // Ranks that block take messages in one agreed order; fewer buffers than it needs would stop
  // them.
  if (traffic.model == TransferModel::kBlocking) {
    return absl::ResourceExhaustedError(
        "expected memory for all messages that wait while transfers block, found less");
  }
  const MessagePlaces places = PlacesOf(ops, traffic.samples, traffic.plans, found.buffers);
  ASSIGN_OR_RETURN(found.run, SimulatePipeline(ops, traffic.model, places));
  return found;
}

ScheduleJudge JudgeByBuffers(const MessageTraffic& traffic) {
  return [traffic](const OpTable& ops) -> absl::StatusOr<JudgedRun> {
    ASSIGN_OR_RETURN(BufferedRun found, RunWithBuffers(ops, traffic));
    return JudgedRun{
        .run = std::move(found.run),
        .peak_bytes = std::ranges::max_element(found.memory, {}, &RankMemory::bytes)->bytes()};
  };
}

}  // namespace crossmesh
