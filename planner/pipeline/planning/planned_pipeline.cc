#include "planner/pipeline/planning/planned_pipeline.h"

#include "common/base/status_macros.h"
#include "planner/pipeline/planning/pipeline_choice.h"
#include "planner/pipeline/planning/schedule_planner.h"
#include "planner/pipeline/schedules/schedule_names.h"

#include <algorithm>
#include <string>
#include <utility>

#include <absl/status/status.h>

namespace crossmesh {
namespace {

v1::PipelineCandidate CandidateOf(const PlannedPipeline& planned, SearchObjective objective,
                                  double bound) {
  v1::PipelineCandidate candidate;
  candidate.set_seconds(planned.run.seconds);
  candidate.set_span_seconds(planned.run.span_seconds);
  candidate.set_gap(GapOf(ObjectiveOf(planned.run, objective), bound));
  const auto fullest = std::ranges::max_element(planned.proof.memory, {}, &RankMemory::bytes);
  candidate.set_peak_bytes(fullest->bytes().value());
  candidate.set_bubble_ratio(BubbleRatio(*planned.ops, planned.run));
  return candidate;
}

// Is it worth nothing beside the other?
bool IsBeaten(const v1::PipelineCandidate& one, const v1::PipelineCandidate& other) {
  return other.refused().empty() && other.seconds() <= one.seconds() &&
         other.peak_bytes() <= one.peak_bytes() &&
         (other.seconds() < one.seconds() || other.peak_bytes() < one.peak_bytes());
}

// The same ops, or the same reason why there are none.
bool IsTheSame(const absl::StatusOr<std::shared_ptr<const PlannedPipeline>>& one,
               const absl::StatusOr<std::shared_ptr<const PlannedPipeline>>& other) {
  if (!one.ok() || !other.ok()) return one.status() == other.status();
  return (*one)->schedule == (*other)->schedule;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const PlannedPipeline>> PlanPipeline(
    PipelineDescription description, const v1::PipelineChoice& choice, CancelCheck cancelled) {
  ASSIGN_OR_RETURN(const PipelineChoice decoded, FromProto(choice));
  ASSIGN_OR_RETURN(const SchedulePlanner planner,
                   SchedulePlanner::Create(std::move(description), cancelled));
  return planner.Plan(decoded, cancelled);
}

absl::StatusOr<std::vector<v1::PipelineCandidate>> ComparePipelineSchedules(
    const PipelineDescription& description, const v1::PipelineChoice& choice,
    CancelCheck cancelled) {
  ASSIGN_OR_RETURN(PipelineChoice decoded, FromProto(choice));
  ASSIGN_OR_RETURN(const SchedulePlanner planner, SchedulePlanner::Create(description, cancelled));
  std::vector<std::string> names;
  for (const absl::string_view name : ScheduleNames()) {
    if (CheckPlacement(name, planner.profile()).ok()) names.emplace_back(name);
  }
  names.emplace_back(PipelineChoice::kAuto);
  // Each schedule as it is and with its gradients of the weights delayed; where only the latter is
  // asked for, that alone.
  std::vector<BackwardForm> forms = {BackwardForm::kSplit};
  if (decoded.search.form == BackwardForm::kFull) forms.insert(forms.begin(), BackwardForm::kFull);
  // One for all, so that gaps can be compared; where there is none, nothing can be planned.
  const absl::StatusOr<PipelineBound> of_all = planner.BoundOfAll(decoded.search);
  const double bound = of_all.ok() ? of_all->seconds() : 0;
  std::vector<v1::PipelineCandidate> candidates;
  decoded.schedule_file.clear();
  for (const std::string& name : names) {
    absl::StatusOr<std::shared_ptr<const PlannedPipeline>> before = absl::UnknownError("");
    for (const BackwardForm form : forms) {
      RETURN_IF_ERROR(CheckWanted(cancelled));
      decoded.schedule = name;
      decoded.search.form = form;
      auto planned = planner.Plan(decoded, cancelled);
      if (absl::IsCancelled(planned.status())) return planned.status();
      // Schedules that are split by themselves come out the same in both forms, and stand in the
      // table once.
      if (IsTheSame(planned, before)) continue;
      v1::PipelineCandidate& candidate = candidates.emplace_back();
      if (planned.ok()) {
        candidate = CandidateOf(**planned, decoded.search.objective, bound);
      } else {
        candidate.set_refused(std::string(planned.status().message()));
      }
      candidate.set_name(name);
      candidate.set_delay_weight_gradients(form == BackwardForm::kSplit);
      before = std::move(planned);
    }
  }
  for (v1::PipelineCandidate& candidate : candidates) {
    candidate.set_pareto(candidate.refused().empty() &&
                         std::ranges::none_of(candidates, [&](const auto& other) {
                           return IsBeaten(candidate, other);
                         }));
  }
  return candidates;
}

}  // namespace crossmesh
