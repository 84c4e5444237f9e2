#include "planner/pipeline/schedules/sequence_split.h"

#include "common/base/status_macros.h"
#include "planner/pipeline/schedules/counts.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace crossmesh {

absl::StatusOr<Schedule> MakeSequenceSplit(std::span<const int32_t> windows, int32_t microbatches,
                                           int32_t parts) {
  constexpr absl::string_view kName = "sequence_split";
  const auto stages = static_cast<int32_t>(windows.size());
  RETURN_IF_ERROR(CheckCount(kName, {.name = "stages", .count = stages}));
  RETURN_IF_ERROR(CheckCount(kName, {.name = "microbatches", .count = microbatches}));
  RETURN_IF_ERROR(CheckCount(kName, {.name = "parts", .count = parts}));
  Schedule made{.stages = stages, .microbatches = microbatches * parts};
  for (StageIndex stage = 0; stage < stages; ++stage) {
    RETURN_IF_ERROR(
        CheckCount(kName, {.name = "microbatches in a window", .count = windows[stage]}));
    std::vector<Op> row;
    // The first backward op needs the whole of the first sequence forward.
    const int32_t leading = std::min(windows[stage] + parts - 2, made.microbatches);
    MicrobatchIndex forward = 0;
    for (; forward < leading; ++forward) row.push_back({OpKind::kForward, stage, forward});
    for (MicrobatchIndex i = 0; i < made.microbatches; ++i) {
      if (forward < made.microbatches) row.push_back({OpKind::kForward, stage, forward++});
      // Backward in reverse within each sequence: a part's gradient needs those of the parts after
      // it.
      const MicrobatchIndex backward = i / parts * parts + (parts - 1 - i % parts);
      row.push_back({OpKind::kBackward, stage, backward});
    }
    made.ranks.push_back(std::move(row));
  }
  return made;
}

absl::StatusOr<Schedule> MakeSequenceSplit(int32_t stages, int32_t microbatches, int32_t parts) {
  std::vector<int32_t> windows;
  for (StageIndex stage = 0; stage < stages; ++stage) windows.push_back(stages - stage);
  return MakeSequenceSplit(windows, microbatches, parts);
}

}  // namespace crossmesh
