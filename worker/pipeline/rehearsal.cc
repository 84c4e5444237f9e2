#include "worker/pipeline/rehearsal.h"

#include <cstring>
#include <span>

#include <absl/strings/str_cat.h>
#include <absl/time/clock.h>
#include <absl/time/time.h>

namespace crossmesh {
namespace {

// A byte that a message consists of. Not the hash of a library, because both ends must agree.
std::byte ByteOf(int64_t iteration, StageIndex from, StageIndex to, MicrobatchIndex microbatch) {
  uint64_t mixed = 0;
  for (const int64_t word : {iteration, int64_t{from}, int64_t{to}, int64_t{microbatch}}) {
    mixed = (mixed ^ static_cast<uint64_t>(word)) * 0x9e3779b97f4a7c15;
    mixed ^= mixed >> 32;
  }
  return static_cast<std::byte>(mixed & 0xff);
}

bool ConsistsOf(std::span<const std::byte> bytes, std::byte expected) {
  return bytes.empty() || (bytes.front() == expected &&
                           std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0);
}

absl::Status Check(const PipelineOp& op) {
  for (const PipelineTensor& input : op.inputs) {
    const std::byte expected =
        ByteOf(op.iteration, input.other_stage, op.op.stage, op.op.microbatch);
    for (const PipelineTensor::Tile& tile : input.tiles) {
      if (ConsistsOf(tile.bytes, expected)) continue;
      return absl::DataLossError(absl::StrCat("tensor ", input.name, " from stage ",
                                              input.other_stage, " at device ",
                                              ToString(tile.device), ": expected bytes of ",
                                              static_cast<int>(expected), ", found others"));
    }
  }
  return absl::OkStatus();
}

void Fill(const PipelineOp& op) {
  for (const PipelineTensor& output : op.outputs) {
    const std::byte byte = ByteOf(op.iteration, op.op.stage, output.other_stage, op.op.microbatch);
    for (const PipelineTensor::Tile& tile : output.tiles) {
      std::memset(tile.bytes.data(), static_cast<int>(byte), tile.bytes.size());
    }
  }
}

}  // namespace

void Rehearse(RankQueue& queue) {
  for (;;) {
    const PipelineStep step = queue.Next();
    if (step.kind == PipelineStep::Kind::kOver) return;
    if (step.kind == PipelineStep::Kind::kComplete) continue;
    if (step.kind == PipelineStep::Kind::kStateLost) {
      queue.Done();  // it has none
      continue;
    }
    const absl::Time end = absl::Now() + absl::Seconds(step.op->seconds);
    absl::Status found = Check(*step.op);
    if (step.backward != nullptr) found.Update(Check(*step.backward));
    if (!found.ok()) {
      queue.Fail(found);
      continue;
    }
    Fill(*step.op);
    if (step.backward != nullptr) Fill(*step.backward);
    // The rest of the time that the op takes, unless the run ends before.
    queue.WaitForEnd(end - absl::Now());
    queue.Done();
  }
}

}  // namespace crossmesh
