#include "planner/pipeline/memory.h"

#include "common/base/format.h"

#include <optional>

#include <absl/strings/str_cat.h>

namespace crossmesh {
std::vector<RankMemory> FixedMemory(const PipelineProfile& profile) {
  std::vector<RankMemory> memory(profile.ranks());
  for (const StageProfile& stage : profile.stages) {
    memory[stage.rank].static_bytes += stage.static_bytes;
  }
  for (const EdgeProfile& edge : profile.edges) {
    if (!profile.passes(edge)) continue;
    const ByteCount bytes = profile.transfer_buffers * (edge.forward_bytes + edge.backward_bytes);
    memory[profile.stages[edge.from].rank].buffer_bytes += edge.from_buffer_bytes.value_or(bytes);
    memory[profile.stages[edge.to].rank].buffer_bytes += edge.to_buffer_bytes.value_or(bytes);
  }
  return memory;
}

std::vector<std::optional<ByteCount>> RoomForActivations(const PipelineProfile& profile) {
  std::vector<std::optional<ByteCount>> room = profile.rank_bytes_max;
  const std::vector<RankMemory> fixed = FixedMemory(profile);
  for (RankIndex rank = 0; rank < profile.ranks(); ++rank) {
    if (room[rank]) *room[rank] -= fixed[rank].bytes();
  }
  return room;
}

std::vector<RankMemory> PeakMemory(const OpTable& ops) {
  const PipelineProfile& profile = ops.profile();
  std::vector<RankMemory> memory = FixedMemory(profile);
  for (RankIndex rank = 0; rank < profile.ranks(); ++rank) {
    memory[rank].peak = ops.op(ops.first(rank));
    ByteCount held;
    for (OpIndex index = ops.first(rank); index < ops.first(rank + 1); ++index) {
      const Op& op = ops.op(index);
      const StageProfile& stage = profile.stages[op.stage];
      const double scale = profile.ScaleOf(op.microbatch);
      // Taken when the op begins, freed when it ends: the peak is in between.
      if (op.kind == OpKind::kForward) held += stage.ActivationBytes(scale);
      if (held > memory[rank].activation_bytes) {
        memory[rank].activation_bytes = held;
        memory[rank].peak = Unfused(op);
      }
      held -= stage.FreedBy(op.kind, scale);
    }
  }
  return memory;
}

absl::Status CheckMemory(const OpTable& ops, const std::vector<RankMemory>& memory) {
  for (RankIndex rank = 0; rank < std::ssize(memory); ++rank) {
    const std::optional<ByteCount>& most = ops.profile().rank_bytes_max[rank];
    const RankMemory& found = memory[rank];
    if (!most || found.bytes() <= *most) continue;
    return absl::ResourceExhaustedError(
        absl::StrCat("rank ", rank, ": expected at most ", FormatBytes(*most), ", found ",
                     FormatBytes(found.bytes()), " at op ", ToString(found.peak), ": ",
                     FormatBytes(found.static_bytes), " static, ", FormatBytes(found.buffer_bytes),
                     " of messages, ", FormatBytes(found.activation_bytes), " of activations"));
  }
  return absl::OkStatus();
}

}  // namespace crossmesh
