#include "planner/pipeline/search/schedule_search.h"

#include "common/base/status_macros.h"
#include "planner/pipeline/memory.h"
#include "planner/pipeline/op_table.h"
#include "planner/pipeline/search/candidates.h"
#include "planner/pipeline/search/improve.h"
#include "planner/pipeline/timeline.h"

#include <algorithm>
#include <utility>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/strip.h>

namespace crossmesh {
namespace {

class ScheduleSearch {
 public:
  ScheduleSearch(const PipelineProfile& profile, int32_t microbatches, const SearchOptions& options,
                 PipelineBound bound)
      : profile_(profile), microbatches_(microbatches), options_(options) {
    result_.bound = std::move(bound);
  }

  absl::StatusOr<SearchResult> Search(CancelCheck cancelled) && {
    const double bound = result_.bound.seconds();
    for (const Candidate& candidate :
         ListCandidates(profile_, microbatches_, options_.form, bound)) {
      RETURN_IF_ERROR(CheckWanted(cancelled));
      // Something must be found whatever the budget; after that it counts.
      if (!result_.pareto.empty() && !HasBudget()) break;
      absl::StatusOr<Schedule> schedule = candidate.make();
      // A family that does not suit this pipeline is no error: others are tried.
      if (!schedule.ok()) continue;
      RETURN_IF_ERROR(Look(candidate.name, *schedule));
      RETURN_IF_ERROR(ImproveAtOnce(candidate.name, *schedule));
    }
    if (result_.pareto.empty()) {
      return absl::ResourceExhaustedError(
          "schedules: expected one that fits the memory of the ranks, found none");
    }
    RETURN_IF_ERROR(Improve(cancelled));
    return std::move(result_);
  }

 private:
  // A schedule costs its ops twice: to be made, and to be run.
  bool HasBudget() const { return result_.ops + 2 * ops_of_one_ <= options_.ops_max; }
  double ObjectiveOf(const FoundSchedule& found) const {
    return options_.objective == SearchObjective::kSeconds ? found.seconds : found.span_seconds;
  }

  absl::Status Look(const std::string& name, Schedule schedule) {
    ASSIGN_OR_RETURN(const OpTable ops, OpTable::Create(schedule, profile_));
    ops_of_one_ = ops.size();
    result_.ops += ops.size();  // to make it
    const std::vector<RankMemory> memory = PeakMemory(ops);
    if (!CheckMemory(ops, memory).ok()) return absl::OkStatus();
    ASSIGN_OR_RETURN(const PipelineTimeline run, SimulatePipeline(ops, options_.model));
    result_.ops += ops.size();
    FoundSchedule found{
        .name = name,
        .seconds = run.seconds,
        .span_seconds = run.span_seconds,
        .peak_bytes = std::ranges::max_element(memory, {}, &RankMemory::bytes)->bytes(),
        .schedule = std::move(schedule)};
    found.gap = ObjectiveOf(found) / result_.bound.seconds() - 1;
    Enter(std::move(found));
    return absl::OkStatus();
  }

  void Enter(FoundSchedule found) {
    const auto is_as_good = [this](const FoundSchedule& a, const FoundSchedule& b) {
      return ObjectiveOf(a) <= ObjectiveOf(b) && a.peak_bytes <= b.peak_bytes;
    };
    const auto drop = [this](FoundSchedule& dropped) {
      // Only those that may be chosen keep their ops.
      dropped.schedule = {};
      result_.others.push_back(std::move(dropped));
    };
    std::vector<FoundSchedule>& pareto = result_.pareto;
    if (std::ranges::any_of(pareto, [&](const auto& other) { return is_as_good(other, found); })) {
      return drop(found);
    }
    std::vector<FoundSchedule> kept;
    for (FoundSchedule& other : pareto) {
      is_as_good(found, other) ? drop(other) : kept.push_back(std::move(other));
    }
    const auto at = std::ranges::lower_bound(
        kept, ObjectiveOf(found), {}, [this](const FoundSchedule& f) { return ObjectiveOf(f); });
    kept.insert(at, std::move(found));
    pareto = std::move(kept);
  }

  // Small schedules are improved each, with a part of the budget: from many places some lead
  // further. In larger ones single moves are too dear.
  absl::Status ImproveAtOnce(const std::string& name, const Schedule& schedule) {
    constexpr int64_t kPart = 64, kTrials = 64;
    if (result_.pareto.empty()) return absl::OkStatus();  // nor has this one fitted the memory
    const int64_t ops_max = std::min(options_.ops_max / kPart, options_.ops_max - result_.ops);
    if (ops_of_one_ * kTrials > ops_max || result_.best().gap <= 0) return absl::OkStatus();
    return ImproveOne(name, schedule, ops_max);
  }

  absl::Status ImproveOne(const std::string& name, const Schedule& schedule, int64_t ops_max) {
    if (options_.objective != SearchObjective::kSeconds) return absl::OkStatus();
    ASSIGN_OR_RETURN(ImprovedSchedule improved,
                     ImproveSchedule(schedule, profile_, options_.model, ops_max));
    result_.ops += improved.ops;
    constexpr absl::string_view kImproved = ", improved";
    return Look(absl::StrCat(absl::StripSuffix(name, kImproved), kImproved),
                std::move(improved.schedule));
  }

  // The fastest ones, as far as the budget goes. Moves of ops shorten the time, not the span.
  absl::Status Improve(CancelCheck cancelled) {
    constexpr size_t kImproved = 4;
    const std::vector<FoundSchedule> begun(
        result_.pareto.begin(),
        result_.pareto.begin() + std::min(kImproved, result_.pareto.size()));
    for (const FoundSchedule& from : begun) {
      RETURN_IF_ERROR(CheckWanted(cancelled));
      if (!HasBudget() || from.gap <= 0) continue;
      RETURN_IF_ERROR(ImproveOne(from.name, from.schedule, options_.ops_max - result_.ops));
    }
    return absl::OkStatus();
  }

  const PipelineProfile& profile_;
  const int32_t microbatches_;
  const SearchOptions& options_;
  int64_t ops_of_one_ = 0;
  SearchResult result_;
};

}  // namespace

absl::StatusOr<SearchResult> SearchSchedules(const PipelineProfile& profile, int32_t microbatches,
                                             const SearchOptions& options, CancelCheck cancelled) {
  ASSIGN_OR_RETURN(PipelineBound bound,
                   ComputePipelineBound(profile, microbatches, options.form, options.model));
  return ScheduleSearch(profile, microbatches, options, std::move(bound)).Search(cancelled);
}

}  // namespace crossmesh
