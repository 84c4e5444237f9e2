#include "planner/pipeline/search/improve.h"

#include "common/base/status_macros.h"
#include "planner/pipeline/memory.h"
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

// Places of ops that began as soon as the op before them ended, on a way to the last end. With
// ports, ops that waited for a transfer which waited for a port end the way.
std::vector<Place> CriticalPlaces(const OpTable& ops, const PipelineTimeline& run) {
  OpIndex at = 0;
  for (OpIndex i = 0; i < ops.size(); ++i) {
    if (run.ops[i].end > run.ops[at].end) at = i;
  }
  std::vector<Place> places;
  while (at != OpTable::kNone && run.ops[at].begin > 0) {
    const Op& op = ops.op(at);
    const RankIndex rank = ops.rank_of(at);
    OpIndex before = OpTable::kNone;
    if (at > ops.first(rank) && run.ops[at - 1].end == run.ops[at].begin) {
      places.push_back({rank, at - ops.first(rank)});
      before = at - 1;
    }
    for (const TransferIndex transfer : ops.TransfersInto(op)) {
      if (before != OpTable::kNone || !ops.Passes(transfer)) continue;
      if (run.messages[ops.MessageOf(transfer, op.microbatch)].end == run.ops[at].begin) {
        before = ops.ProducerOf(transfer, op.microbatch);
      }
    }
    at = before;
  }
  return places;
}

class Improver {
 public:
  Improver(Schedule schedule, const PipelineProfile& profile, TransferModel model, int64_t ops_max)
      : profile_(profile), model_(model), ops_max_(ops_max) {
    found_.schedule = std::move(schedule);
  }

  absl::StatusOr<ImprovedSchedule> Improve() && {
    ASSIGN_OR_RETURN(const OpTable ops, OpTable::Create(found_.schedule, profile_));
    ASSIGN_OR_RETURN(const PipelineTimeline run, SimulatePipeline(ops, model_));
    found_.ops += ops.size();
    found_.seconds = run.seconds;
    begins_ = SumOfBegins(run);
    std::vector<Place> places = CriticalPlaces(ops, run);
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
        if (found_.ops >= ops_max_) return false;
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
    if (std::ranges::any_of(passed, is_alike)) return false;
    Move(row, from, to);
    const absl::StatusOr<OpTable> ops = OpTable::Create(found_.schedule, profile_);
    found_.ops += ops->size();
    if (CheckMemory(*ops, PeakMemory(*ops)).ok()) {
      const absl::StatusOr<PipelineTimeline> run = SimulatePipeline(*ops, model_);
      if (run.ok() && IsBetter(*run)) {
        found_.seconds = run->seconds;
        begins_ = SumOfBegins(*run);
        places = CriticalPlaces(*ops, *run);
        return true;
      }
    }
    Move(row, to, from);
    return false;
  }

  // Where the time stays, it helps that ops begin sooner: another move may then save time.
  bool IsBetter(const PipelineTimeline& run) const {
    if (run.seconds < found_.seconds * (1 - kLeastGain)) return true;
    return run.seconds <= found_.seconds && SumOfBegins(run) < begins_ * (1 - kLeastGain);
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
  const TransferModel model_;
  const int64_t ops_max_;
  ImprovedSchedule found_;
  double begins_ = 0;  // of its ops
};

}  // namespace

absl::StatusOr<ImprovedSchedule> ImproveSchedule(const Schedule& schedule,
                                                 const PipelineProfile& profile,
                                                 TransferModel model, int64_t ops_max) {
  return Improver(schedule, profile, model, ops_max).Improve();
}

}  // namespace crossmesh
