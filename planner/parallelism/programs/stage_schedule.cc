#include "planner/parallelism/programs/stage_schedule.h"

#include "common/base/count_text.h"
#include "common/base/status_macros.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

template <typename... Parts>
absl::Status ScheduleRefused(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("program of a grid: ", parts...));
}

// What of a microbatch a stage has done.
enum class Progress : uint8_t { kNothing, kForward, kInputGradient, kAll };

// What it has done after an op; nothing when that is not its turn.
std::optional<Progress> After(Progress done, const Op& op) {
  if (op.is_fused) return std::nullopt;
  if (done == Progress::kNothing && op.kind == OpKind::kForward) return Progress::kForward;
  if (done == Progress::kForward && op.kind == OpKind::kBackward) return Progress::kAll;
  if (done == Progress::kForward && op.kind == OpKind::kInputGradient) {
    return Progress::kInputGradient;
  }
  if (done == Progress::kInputGradient && op.kind == OpKind::kWeightGradient) return Progress::kAll;
  return std::nullopt;
}

// Each microbatch goes forward through the stage, and then back, at once or gradient by gradient.
absl::Status CheckOps(const std::vector<Op>& ops, StageIndex stage, int32_t microbatches) {
  std::vector<Progress> done(microbatches);
  for (const Op& op : ops) {
    if (op.stage != stage) continue;
    const bool is_known = op.microbatch >= 0 && op.microbatch < microbatches;
    const std::optional<Progress> after = is_known ? After(done[op.microbatch], op) : std::nullopt;
    if (!after.has_value()) {
      return ScheduleRefused("expected a forward and then a backward op of stage ", stage,
                             " for each of ", CountText(microbatches, "microbatch", "microbatches"),
                             ", found ", ToString(op));
    }
    done[op.microbatch] = *after;
  }
  if (std::ranges::all_of(done, [](Progress of) { return of == Progress::kAll; })) {
    return absl::OkStatus();
  }
  return ScheduleRefused("expected a forward and a backward op of stage ", stage, " for each of ",
                         CountText(microbatches, "microbatch", "microbatches"), ", found ",
                         CountText(std::ssize(ops), "op", "ops"));
}

// Each stage on one rank, neighbours on two: between them there are transfers of ranks.
absl::Status CheckRanks(const std::vector<std::vector<StageIndex>>& stages_of, size_t stages) {
  std::vector<RankIndex> rank_of(stages, -1);
  for (size_t rank = 0; rank < stages_of.size(); ++rank) {
    for (const StageIndex stage : stages_of[rank]) {
      if (stage < 0 || stage >= static_cast<StageIndex>(stages) || rank_of[stage] >= 0) {
        return ScheduleRefused("expected a schedule of ", stages,
                               " stages, each on one rank, found stage ", stage, " on rank ", rank);
      }
      rank_of[stage] = static_cast<RankIndex>(rank);
    }
  }
  for (size_t stage = 0; stage < stages; ++stage) {
    if (rank_of[stage] < 0) {
      return ScheduleRefused("expected a schedule of ", stages, " stages, found no ops of stage ",
                             stage);
    }
    if (stage > 0 && rank_of[stage] == rank_of[stage - 1]) {
      return ScheduleRefused("expected neighbouring stages on ranks of their own, found stages ",
                             stage - 1, " and ", stage, " on rank ", rank_of[stage]);
    }
  }
  return absl::OkStatus();
}

}  // namespace

// Forward and backward of one microbatch after the other.
Schedule OneByOne(int32_t microbatches) {
  Schedule schedule{.stages = 1, .microbatches = microbatches, .ranks = {{}}};
  for (MicrobatchIndex microbatch = 0; microbatch < microbatches; ++microbatch) {
    schedule.ranks[0].push_back({.kind = OpKind::kForward, .microbatch = microbatch});
    schedule.ranks[0].push_back({.kind = OpKind::kBackward, .microbatch = microbatch});
  }
  return schedule;
}

std::vector<std::vector<StageIndex>> StagesOfRanks(const Schedule& schedule, size_t stages) {
  std::vector<std::vector<StageIndex>> stages_of(schedule.ranks.empty() ? stages
                                                                        : schedule.ranks.size());
  for (size_t rank = 0; rank < stages_of.size(); ++rank) {
    std::vector<StageIndex>& of = stages_of[rank];
    if (!schedule.ranks.empty()) {
      for (const Op& op : schedule.ranks[rank]) of.push_back(op.stage);
    }
    std::ranges::sort(of);
    of.erase(std::unique(of.begin(), of.end()), of.end());
    if (of.empty()) of.push_back(static_cast<StageIndex>(rank));
  }
  return stages_of;
}

absl::Status CheckStageSchedule(const Schedule& schedule, size_t stages, int32_t microbatches) {
  if (schedule.ranks.empty() || schedule.microbatches != microbatches) {
    return ScheduleRefused("expected a schedule of ",
                           CountText(static_cast<int64_t>(stages), "stage", "stages"), " and ",
                           CountText(microbatches, "microbatch", "microbatches"), ", found ",
                           schedule.ranks.size(), " ranks and ", schedule.microbatches);
  }
  const std::vector<std::vector<StageIndex>> stages_of = StagesOfRanks(schedule, stages);
  RETURN_IF_ERROR(CheckRanks(stages_of, stages));
  for (size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    for (const StageIndex stage : stages_of[rank]) {
      RETURN_IF_ERROR(CheckOps(schedule.ranks[rank], stage, microbatches));
    }
  }
  return absl::OkStatus();
}

}  // namespace crossmesh
