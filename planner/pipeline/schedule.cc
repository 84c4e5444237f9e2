#include "planner/pipeline/schedule.h"

#include "common/base/status_macros.h"

#include <algorithm>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_split.h>

namespace crossmesh {

Schedule DelayWeightGradients(const Schedule& schedule) {
  Schedule delayed{.stages = schedule.stages, .microbatches = schedule.microbatches};
  for (const std::vector<Op>& ops : schedule.ranks) {
    std::vector<Op>& row = delayed.ranks.emplace_back();
    for (const Op& op : ops) {
      const bool is_fused = !row.empty() && row.back().is_fused;
      if (op.kind == OpKind::kBackward && !is_fused) {
        row.push_back({OpKind::kInputGradient, op.stage, op.microbatch});
        row.push_back({OpKind::kWeightGradient, op.stage, op.microbatch});
      } else {
        row.push_back(op);
      }
    }
  }
  return delayed;
}

std::string ToString(const Schedule& schedule) {
  std::string text;
  for (const std::vector<Op>& ops : schedule.ranks) {
    const auto append = [](std::string* out, const Op& op) { absl::StrAppend(out, ToString(op)); };
    absl::StrAppend(&text, absl::StrJoin(ops, " ", append), "\n");
  }
  return text;
}

absl::StatusOr<Schedule> ParseSchedule(absl::string_view text) {
  Schedule schedule;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    std::vector<Op>& row = schedule.ranks.emplace_back();
    for (const absl::string_view word : absl::StrSplit(line, ' ', absl::SkipEmpty())) {
      ASSIGN_OR_RETURN(const Op op, ParseOp(word));
      schedule.stages = std::max(schedule.stages, op.stage + 1);
      schedule.microbatches = std::max(schedule.microbatches, op.microbatch + 1);
      row.push_back(op);
    }
  }
  return schedule;
}

}  // namespace crossmesh
