#include "planner/pipeline/search/improve.h"

#include "common/base/status_macros.h"
#include "planner/pipeline/op_table.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

namespace crossmesh {
namespace {

constexpr int32_t kReach = 12;       // places
constexpr double kLeastGain = 1e-9;  // of the time

// A place in the order of a rank.
struct Place {
  RankIndex rank = 0;
  int32_t place = 0;
};

// The op that ends last, of all or of the rank that takes longest.
OpIndex LastOp(const OpTable& ops, const PipelineTimeline& run, SearchObjective objective) {
  OpIndex last = 0;
  double most = 0;
  for (RankIndex rank = 0; rank < ops.profile().ranks(); ++rank) {
    const OpIndex of_rank = ops.first(rank + 1) - 1;
    const double begin =
        objective == SearchObjective::kSeconds ? 0 : run.ops[ops.first(rank)].begin;
    if (run.ops[of_rank].end - begin <= most) continue;
    most = run.ops[of_rank].end - begin;
    last = of_rank;
  }
  return last;
}

// An op whose message came in when a step that waited for it began, or kNone.
OpIndex ProducerOfLastInput(const OpTable& ops, const PipelineTimeline& run, OpIndex step) {
  for (OpIndex index = step; index < ops.EndOf(step); ++index) {
    const Op& op = ops.op(index);
    for (const TransferIndex transfer : ops.TransfersInto(op)) {
      if (!ops.Passes(transfer)) continue;
      if (run.messages[ops.MessageOf(transfer, op.microbatch)].end == run.ops[step].begin) {
        return ops.ProducerOf(transfer, op.microbatch);
      }
    }
  }
  return OpTable::kNone;
}

// Places of ops that began as soon as the op before them ended, on a way to the end of that one.
// Ops that waited for a transfer which waited for a port or for memory end the way.
std::vector<Place> CriticalPlaces(const OpTable& ops, const PipelineTimeline& run, OpIndex at) {
  std::vector<Place> places;
  while (at != OpTable::kNone && run.ops[at].begin > 0) {
    const OpIndex step = ops.StepOf(at);
    const RankIndex rank = ops.rank_of(at);
    if (step > ops.first(rank) && run.ops[step - 1].end == run.ops[step].begin) {
      places.push_back({rank, step - ops.first(rank)});
      at = step - 1;
    } else {
      at = ProducerOfLastInput(ops, run, step);
    }
  }
  return places;
}

class Improver {
 public:
  Improver(Schedule schedule, const PipelineProfile& profile, const ImproveOptions& options)
      : profile_(profile), options_(options) {
    found_.schedule = std::move(schedule);
  }

  absl::StatusOr<ImprovedSchedule> Improve() && {
    ASSIGN_OR_RETURN(const OpTable ops, OpTable::Create(found_.schedule, profile_));
    ASSIGN_OR_RETURN(const JudgedRun judged, options_.judge(ops));
    ops_of_one_ = found_.ops = ops.size();
    std::vector<Place> places;
    Take(ops, judged.run, places);
    while (TakeBetter(places)) {
    }
    return std::move(found_);
  }

 private:
  // The first move of those at these places that helps; then they are those after it.
  bool TakeBetter(std::vector<Place>& places) {
    for (const auto& [rank, place] : places) {
      const auto last = static_cast<int32_t>(found_.schedule.ranks[rank].size()) - 1;
      for (int32_t reach = 1; reach <= kReach; ++reach) {
        // A reach of 1 is the same exchange either way, and is tried once.
        // The op moves forward, or the one before it back.
        if (place - reach >= 0 && Try(rank, place, place - reach, places)) return true;
        if (place - 1 + reach <= last && reach > 1 &&
            Try(rank, place - 1, place - 1 + reach, places)) {
          return true;
        }
        if (!HasBudget()) return false;
      }
    }
    return false;
  }

  bool Try(RankIndex rank, int32_t from, int32_t to, std::vector<Place>& places) {
    std::vector<Op>& row = found_.schedule.ranks[rank];
    // Both ends of a transfer keep to one order of microbatches.
    const auto passed = from < to ? std::span(row).subspan(from + 1, to - from)
                                  : std::span(row).subspan(to, from - to);
    const auto is_alike = [&op = row[from]](const Op& other) {
      return op.kind == other.kind && op.stage == other.stage;
    };
    if (std::ranges::any_of(passed, is_alike) || !HasBudget()) return false;
    Move(row, from, to);
    // Where something would come between fused ops there is no table.
    const absl::StatusOr<OpTable> ops = OpTable::Create(found_.schedule, profile_);
    if (ops.ok()) {
      found_.ops += ops_of_one_;
      const absl::StatusOr<JudgedRun> judged = options_.judge(*ops);
      if (judged.ok() && IsBetter(judged->run)) {
        Take(*ops, judged->run, places);
        return true;
      }
    }
    Move(row, to, from);
    return false;
  }

  bool HasBudget() const { return found_.ops + ops_of_one_ <= options_.ops_max; }

  void Take(const OpTable& ops, const PipelineTimeline& run, std::vector<Place>& places) {
    found_.seconds = ObjectiveOf(run, options_.objective);
    begins_ = SumOfBegins(run);
    places = CriticalPlaces(ops, run, LastOp(ops, run, options_.objective));
  }

  // Where the time stays, it helps that ops begin sooner: another move may then save time.
  bool IsBetter(const PipelineTimeline& run) const {
    const double seconds = ObjectiveOf(run, options_.objective);
    if (seconds < found_.seconds * (1 - kLeastGain)) return true;
    return seconds <= found_.seconds && SumOfBegins(run) < begins_ * (1 - kLeastGain);
  }
  static double SumOfBegins(const PipelineTimeline& run) {
    double sum = 0;
    for (const TimeSpan& op : run.ops) sum += op.begin;
    return sum;
  }

  static void Move(std::vector<Op>& row, int32_t from, int32_t to) {
    if (from < to) {
      std::rotate(row.begin() + from, row.begin() + from + 1, row.begin() + to + 1);
    } else {
      std::rotate(row.begin() + to, row.begin() + from, row.begin() + from + 1);
    }
  }

  const PipelineProfile& profile_;
  const ImproveOptions& options_;
  ImprovedSchedule found_;
  int64_t ops_of_one_ = 0;
  double begins_ = 0;  // of its ops
};

}  // namespace

absl::StatusOr<ImprovedSchedule> ImproveSchedule(const Schedule& schedule,
                                                 const PipelineProfile& profile,
                                                 const ImproveOptions& options) {
  return Improver(schedule, profile, options).Improve();
}

}  // namespace crossmesh
