#include "planner/pipeline/schedules/looped_bfs.h"

#include "common/base/status_macros.h"
#include "planner/pipeline/schedules/counts.h"
#include "planner/pipeline/schedules/placement.h"

#include <utility>
#include <vector>

namespace crossmesh {

absl::StatusOr<Schedule> MakeLoopedBreadthFirst(int32_t ranks, int32_t chunks,
                                                int32_t microbatches) {
  constexpr absl::string_view kName = "looped_bfs";
  RETURN_IF_ERROR(CheckCount(kName, {.name = "ranks", .count = ranks}));
  RETURN_IF_ERROR(CheckCount(kName, {.name = "chunks", .count = chunks}));
  RETURN_IF_ERROR(CheckCount(kName, {.name = "microbatches", .count = microbatches}));
  Schedule made{.stages = ranks * chunks, .microbatches = microbatches};
  for (RankIndex rank = 0; rank < ranks; ++rank) {
    std::vector<Op> row;
    for (int32_t chunk = 0; chunk < chunks; ++chunk) {
      for (MicrobatchIndex m = 0; m < microbatches; ++m) {
        row.push_back({OpKind::kForward, LoopedStage(rank, chunk, ranks), m});
      }
    }
    // Backward in exactly the reverse order: what came forward last goes back first.
    for (size_t i = row.size(); i-- > 0;) {
      row.push_back({OpKind::kBackward, row[i].stage, row[i].microbatch});
    }
    made.ranks.push_back(std::move(row));
  }
  return made;
}

}  // namespace crossmesh
