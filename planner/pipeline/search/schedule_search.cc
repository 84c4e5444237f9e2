#include "planner/pipeline/search/schedule_search.h"

#include "common/base/status_macros.h"
#include "planner/pipeline/op_table.h"
#include "planner/pipeline/search/candidates.h"
#include "planner/pipeline/search/improve.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include <absl/container/flat_hash_map.h>
#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/strip.h>

namespace crossmesh {
namespace {

constexpr int64_t kPartOfBeam = 8;  // of the budget, for each beam

// The same for equal orders, and hardly ever for others.
uint64_t FingerprintOf(const Schedule& schedule) {
  uint64_t fingerprint = 0;
  const auto add = [&fingerprint](int64_t value) {
    // By the multiplier of FNV-1a, and with the high bits brought down again.
    fingerprint = (fingerprint ^ static_cast<uint64_t>(value)) * 0x100000001b3;
    fingerprint ^= fingerprint >> 29;
  };
  for (const std::vector<Op>& row : schedule.ranks) {
    for (const Op& op : row) {
      add(int64_t{op.stage} << 35 | int64_t{op.microbatch} << 3 | int64_t{op.is_fused} << 2 |
          static_cast<int64_t>(op.kind));
    }
    add(-1);
  }
  return fingerprint;
}

absl::StatusOr<PipelineBound> BoundOf(const PipelineProfile& profile, int32_t microbatches,
                                      const SearchOptions& options) {
  if (options.objective == SearchObjective::kSpan) {
    return ComputeSpanBound(profile, microbatches, options.form);
  }
  return ComputePipelineBound(profile, microbatches, options.form, options.model);
}

class ScheduleSearch {
 public:
  struct Bounds {
    PipelineBound all;
    PipelineBound in_turn;  // of those whose ops are not fused: what lists and beams make
  };

  ScheduleSearch(const PipelineProfile& profile, int32_t microbatches, const SearchOptions& options,
                 Bounds bounds)
      : profile_(profile),
        microbatches_(microbatches),
        options_(options),
        judge_(options.judge ? options.judge : JudgeByProfile(options.model)),
        ops_of_one_(std::ssize(profile.stages) * microbatches *
                    (options.form == BackwardForm::kFull ? 2 : 3)),
        seconds_in_turn_(bounds.in_turn.seconds()) {
    result_.bound = std::move(bounds.all);
  }

  absl::StatusOr<SearchResult> Search(CancelCheck cancelled) && {
    for (const Candidate& candidate : ListInAllRooms()) {
      RETURN_IF_ERROR(CheckWanted(cancelled));
      // Something must be found whatever the budget; after that it counts.
      if (!result_.pareto.empty() && !MayLook(candidate)) continue;
      absl::StatusOr<Schedule> schedule = candidate.make();
      result_.ops += (candidate.effort - 1) * ops_of_one_;
      // A family that does not suit this pipeline is no error, nor is an order that cannot run:
      // others are tried.
      if (schedule.ok() && Look(candidate.name, *schedule)) {
        ImproveAtOnce(candidate.name, *schedule);
      }
    }
    if (result_.pareto.empty()) return NothingFound();
    RETURN_IF_ERROR(Improve(cancelled));
    return std::move(result_);
  }

 private:
  // Those of all rooms in turn, the named ones of all before any other.
  std::vector<Candidate> ListInAllRooms() const {
    std::vector<std::vector<Candidate>> lists;
    const CandidateRequest request{.microbatches = microbatches_,
                                   .form = options_.form,
                                   .seconds = seconds_in_turn_,
                                   .beam_ops = options_.ops_max / kPartOfBeam,
                                   .shares_ports = options_.model != TransferModel::kLatency};
    for (const PipelineProfile& room : options_.rooms) {
      lists.push_back(ListCandidates(room, request));
    }
    if (lists.empty()) lists.push_back(ListCandidates(profile_, request));
    std::vector<Candidate> all;
    for (size_t place = 0; std::ranges::any_of(
             lists, [place](const std::vector<Candidate>& list) { return place < list.size(); });
         ++place) {
      for (std::vector<Candidate>& list : lists) {
        if (place < list.size()) all.push_back(std::move(list[place]));
      }
    }
    // One that has no name stays the first.
    std::ranges::stable_partition(all.begin() + 1, all.end(), &Candidate::is_named);
    return all;
  }

  // What has a name is always looked at, so that nothing found is slower: but for a search that may
  // not even put one schedule in order.
  bool MayLook(const Candidate& candidate) const {
    if (candidate.is_named) return options_.ops_max >= ops_of_one_;
    return (candidate.effort + 1) * ops_of_one_ <= budget();  // it is made, and run
  }

  int64_t budget() const { return options_.ops_max - result_.ops; }
  double ObjectiveOf(const FoundSchedule& found) const {
    return options_.objective == SearchObjective::kSeconds ? found.seconds : found.span_seconds;
  }

  // Returns whether it is another one than before, fits and can run.
  bool Look(const std::string& name, Schedule schedule) {
    const uint64_t fingerprint = FingerprintOf(schedule);
    if (const auto known = known_.find(fingerprint); known != known_.end()) {
      result_.ops += ops_of_one_;  // to make it
      result_.others.push_back(known->second);
      result_.others.back().name = name;
      return false;
    }
    const absl::StatusOr<OpTable> ops = OpTable::Create(schedule, profile_);
    if (!ops.ok()) return Skip(ops.status());
    result_.ops += ops_of_one_;  // to make it
    absl::StatusOr<JudgedRun> judged = judge_(*ops);
    if (!judged.ok()) return Skip(judged.status());
    result_.ops += ops_of_one_;
    FoundSchedule found{.name = name,
                        .seconds = judged->run.seconds,
                        .span_seconds = judged->run.span_seconds,
                        .bubble_ratio = BubbleRatio(*ops, judged->run),
                        .peak_bytes = judged->peak_bytes};
    found.gap = GapOf(ObjectiveOf(found), result_.bound.seconds());
    known_.emplace(fingerprint, found);
    found.schedule = std::move(schedule);
    Enter(std::move(found));
    return true;
  }

  bool Skip(const absl::Status& why) {
    if (skipped_.ok() || absl::IsResourceExhausted(why)) skipped_ = why;
    return false;
  }

  absl::Status NothingFound() const {
    if (!skipped_.ok() && !absl::IsResourceExhausted(skipped_)) return skipped_;
    return absl::ResourceExhaustedError(
        "schedules: expected one that fits the memory of the ranks, found none");
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
  void ImproveAtOnce(const std::string& name, const Schedule& schedule) {
    constexpr int64_t kPart = 64, kTrials = 64;
    const int64_t ops_max = std::min(options_.ops_max / kPart, budget());
    if (ops_of_one_ * kTrials > ops_max || result_.best().gap <= 0) return;
    ImproveOne(name, schedule, ops_max);
  }

  // With so many ops, those included in which it is looked at.
  void ImproveOne(const std::string& name, const Schedule& schedule, int64_t ops_max) {
    absl::StatusOr<ImprovedSchedule> improved = ImproveSchedule(
        schedule, profile_,
        {.judge = judge_, .objective = options_.objective, .ops_max = ops_max - 2 * ops_of_one_});
    if (!improved.ok()) return;
    result_.ops += improved->ops;
    constexpr absl::string_view kImproved = ", improved";
    Look(absl::StrCat(absl::StripSuffix(name, kImproved), kImproved),
         std::move(improved->schedule));
  }

  // The fastest ones, as far as the budget goes.
  absl::Status Improve(CancelCheck cancelled) {
    constexpr size_t kImproved = 4;
    const std::vector<FoundSchedule> begun(
        result_.pareto.begin(),
        result_.pareto.begin() + std::min(kImproved, result_.pareto.size()));
    for (const FoundSchedule& from : begun) {
      RETURN_IF_ERROR(CheckWanted(cancelled));
      if (budget() < 4 * ops_of_one_ || from.gap <= 0) continue;  // not one move
      ImproveOne(from.name, from.schedule, budget());
    }
    return absl::OkStatus();
  }

  const PipelineProfile& profile_;
  const int32_t microbatches_;
  const SearchOptions& options_;
  const ScheduleJudge judge_;
  absl::flat_hash_map<uint64_t, FoundSchedule> known_;  // by fingerprint, without their ops
  const int64_t ops_of_one_;
  const double seconds_in_turn_;
  absl::Status skipped_;  // why a candidate was: for want of memory, if any was
  SearchResult result_;
};

}  // namespace

absl::StatusOr<SearchResult> SearchSchedules(const PipelineProfile& profile, int32_t microbatches,
                                             const SearchOptions& options, CancelCheck cancelled) {
  ScheduleSearch::Bounds bounds;
  ASSIGN_OR_RETURN(bounds.all, BoundOf(profile, microbatches, options));
  PipelineProfile in_turn = profile;
  in_turn.pairs.clear();
  ASSIGN_OR_RETURN(bounds.in_turn, BoundOf(in_turn, microbatches, options));
  return ScheduleSearch(profile, microbatches, options, std::move(bounds)).Search(cancelled);
}

}  // namespace crossmesh
