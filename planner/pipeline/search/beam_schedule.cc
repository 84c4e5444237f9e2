#include "planner/pipeline/search/beam_schedule.h"

#include "common/base/status_macros.h"
#include "planner/pipeline/search/memory_units.h"
#include "planner/pipeline/ways.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include <absl/container/flat_hash_map.h>
#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kRounding = 1e-9;

size_t KindOf(OpKind kind) {
  if (kind == OpKind::kForward) return 0;
  return GivesInputGradient(kind) ? 1 : 2;
}

// The begin of a schedule: what is done, and when it ended.
struct Beginning {
  std::vector<MicrobatchIndex> done;  // by stage and kind
  std::vector<double> ends;           // by stage, kind and microbatch
  std::vector<double> free_at;        // by rank
  std::vector<double> left;           // work, by rank
  int32_t step = -1;                  // its last one
};

// An op that a rank may do next.
struct NextOp {
  Op op;
  RankIndex rank = 0;
  double begin = 0;
  double end = 0;
};

struct Longer {
  double bound = 0;
  double sum = 0;  // of all ranks' bounds
  size_t from = 0;
  NextOp next;

  friend bool operator<(const Longer& a, const Longer& b) {
    return std::tie(a.bound, a.sum, a.from, a.next.op) <
           std::tie(b.bound, b.sum, b.from, b.next.op);
  }
};

class BeamSearch {
 public:
  BeamSearch(const PipelineProfile& profile, int32_t microbatches, BackwardForm form)
      : profile_(profile),
        microbatches_(microbatches),
        form_(form),
        ways_(FindWays(profile, form)),
        memory_(profile, microbatches, form) {
    if (form == BackwardForm::kSplit) kinds_.push_back(OpKind::kWeightGradient);
  }

  absl::StatusOr<Schedule> Find(size_t width) && {
    std::vector<Beginning> beam = {Nothing()};
    const size_t ops = profile_.stages.size() * kinds_.size() * microbatches_;
    for (size_t op = 0; op < ops; ++op) {
      std::vector<Longer> longer;
      for (size_t from = 0; from < beam.size(); ++from) AddLonger(from, beam[from], longer);
      if (longer.empty()) {
        return absl::ResourceExhaustedError("beam: expected an order that fits the memory");
      }
      std::sort(longer.begin(), longer.end());
      beam = Take(beam, longer, width);
    }
    const auto ends = [](const Beginning& all) { return std::ranges::max(all.free_at); };
    return ScheduleOf(*std::ranges::min_element(beam, {}, ends));
  }

 private:
  struct Step {
    int32_t before = -1;
    Op op;
  };

  Beginning Nothing() const {
    Beginning nothing{
        .done = std::vector<MicrobatchIndex>(profile_.stages.size() * kOpKinds, 0),
        .ends = std::vector<double>(profile_.stages.size() * kOpKinds * microbatches_, kNever),
        .free_at = std::vector<double>(profile_.ranks(), 0),
        .left = std::vector<double>(profile_.ranks(), 0)};
    for (const StageProfile& stage : profile_.stages) {
      nothing.left[stage.rank] += microbatches_ * stage.seconds();
    }
    return nothing;
  }

  static MicrobatchIndex DoneOf(const Beginning& of, OpKind kind, StageIndex s) {
    return of.done[s * kOpKinds + KindOf(kind)];
  }
  size_t PlaceOf(const Op& op) const {
    return (op.stage * kOpKinds + KindOf(op.kind)) * microbatches_ + op.microbatch;
  }

  // When the inputs of an op are there; never, when they are not begun.
  double InputsAt(const Beginning& of, const Op& op) const {
    const auto end_of = [&](OpKind kind, StageIndex s) {
      return of.ends[PlaceOf({kind, s, op.microbatch})];
    };
    if (op.kind == OpKind::kWeightGradient) return end_of(OpKind::kInputGradient, op.stage);
    const bool is_forward = op.kind == OpKind::kForward;
    double at = is_forward ? 0 : end_of(OpKind::kForward, op.stage);
    for (const EdgeProfile& edge : profile_.edges) {
      if ((is_forward ? edge.to : edge.from) != op.stage) continue;
      const double way = is_forward ? edge.forward_seconds : edge.backward_seconds;
      at = std::max(at, end_of(op.kind, is_forward ? edge.from : edge.to) +
                            (profile_.passes(edge) ? way : 0));
    }
    return at;
  }

  std::vector<NextOp> FindNext(const Beginning& of) {
    std::vector<NextOp> found;
    for (StageIndex s = 0; s < std::ssize(profile_.stages); ++s) {
      const RankIndex rank = profile_.stages[s].rank;
      for (const OpKind kind : kinds_) {
        const Op op = {kind, s, DoneOf(of, kind, s)};
        if (op.microbatch == microbatches_) continue;
        const double inputs = InputsAt(of, op);
        if (inputs == kNever) continue;
        if (kind == OpKind::kForward && !memory_.IsSafe(of.done, s)) continue;
        const double begin = std::max(inputs, of.free_at[rank]);
        found.push_back({op, rank, begin, begin + profile_.SecondsOf(op)});
      }
    }
    return found;
  }

  void AddLonger(size_t from, Beginning& of, std::vector<Longer>& longer) {
    const std::vector<NextOp> all = FindNext(of);
    if (all.empty()) return;
    // Something must begin on this rank before the first of all ends that could be next.
    const NextOp first = *std::ranges::min_element(all, {}, &NextOp::end);
    for (const NextOp& next : all) {
      if (next.rank != first.rank) continue;
      if (next.op != first.op && next.begin >= first.end - kRounding) continue;
      longer.push_back(Judge(from, of, next));
    }
  }

  Longer Judge(size_t from, Beginning& of, const NextOp& next) const {
    const double free_at = std::exchange(of.free_at[next.rank], next.end);
    const double left =
        std::exchange(of.left[next.rank], of.left[next.rank] - profile_.SecondsOf(next.op));
    MicrobatchIndex& done = of.done[next.op.stage * kOpKinds + KindOf(next.op.kind)];
    ++done;
    Longer longer{.from = from, .next = next};
    for (RankIndex rank = 0; rank < profile_.ranks(); ++rank) {
      const double bound = of.free_at[rank] + of.left[rank] + TailOf(of, rank);
      longer.bound = std::max(longer.bound, bound);
      longer.sum += bound;
    }
    for (StageIndex s = 0; s < std::ssize(profile_.stages); ++s) {
      longer.bound = std::max(longer.bound, BoundOfStage(of, s));
    }
    --done;
    of.free_at[next.rank] = free_at;
    of.left[next.rank] = left;
    return longer;
  }

  // After the last backward op of a rank.
  double TailOf(const Beginning& of, RankIndex rank) const {
    // Gradients of the weights may be what a rank ends with.
    if (form_ == BackwardForm::kSplit) return 0;
    double tail = kNever;
    for (StageIndex s = 0; s < std::ssize(profile_.stages); ++s) {
      if (profile_.stages[s].rank != rank || DoneOf(of, OpKind::kBackward, s) == microbatches_) {
        continue;
      }
      tail = std::min(tail, ways_.tail[s]);
    }
    return tail == kNever ? 0 : tail;
  }

  double BoundOfStage(const Beginning& of, StageIndex s) const {
    const StageProfile& stage = profile_.stages[s];
    const double at = of.free_at[stage.rank], backward = BackwardSeconds(stage, form_);
    const int32_t forwards = microbatches_ - DoneOf(of, OpKind::kForward, s);
    if (forwards > 0) {
      return std::max(at, ways_.head[s]) + (forwards - 1) * stage.forward_seconds + ways_.gap[s] +
             backward + ways_.tail[s];
    }
    const int32_t backwards = microbatches_ - DoneOf(of, OpKind::kBackward, s);
    return backwards > 0 ? at + backwards * backward + ways_.tail[s] : 0;
  }

  // When ranks are free, and when outputs are there that may still be waited for.
  std::vector<double> TimesOf(const Beginning& of) const {
    std::vector<double> times = of.free_at;
    const auto add = [&](Op op, MicrobatchIndex end) {
      for (; op.microbatch < end; ++op.microbatch) times.push_back(of.ends[PlaceOf(op)]);
    };
    const OpKind backward = kinds_.front();
    for (StageIndex s = 0; s < std::ssize(profile_.stages); ++s) {
      add({OpKind::kForward, s, DoneOf(of, backward, s)}, DoneOf(of, OpKind::kForward, s));
    }
    for (const EdgeProfile& edge : profile_.edges) {
      add({backward, edge.to, DoneOf(of, backward, edge.from)}, DoneOf(of, backward, edge.to));
    }
    return times;
  }

  // The best, but none that has done as much as a better one, and nothing of it sooner.
  std::vector<Beginning> Take(const std::vector<Beginning>& beam, const std::vector<Longer>& longer,
                              size_t width) {
    std::vector<Beginning> taken;
    absl::flat_hash_map<std::vector<MicrobatchIndex>, std::vector<std::vector<double>>> known;
    for (const Longer& l : longer) {
      Beginning next = beam[l.from];
      const Op& op = l.next.op;
      ++next.done[op.stage * kOpKinds + KindOf(op.kind)];
      next.free_at[l.next.rank] = l.next.end;
      next.ends[PlaceOf(op)] = l.next.end;
      std::vector<double> times = TimesOf(next);
      std::vector<std::vector<double>>& others = known[next.done];
      const auto is_as_soon = [&times](const std::vector<double>& other) {
        return std::ranges::equal(other, times, std::less_equal<>());
      };
      if (std::ranges::any_of(others, is_as_soon)) continue;
      others.push_back(std::move(times));
      next.left[l.next.rank] -= profile_.SecondsOf(op);
      steps_.push_back({next.step, op});
      next.step = static_cast<int32_t>(steps_.size()) - 1;
      taken.push_back(std::move(next));
      if (taken.size() == width) break;
    }
    return taken;
  }

  Schedule ScheduleOf(const Beginning& all) const {
    Schedule schedule{.stages = static_cast<int32_t>(profile_.stages.size()),
                      .microbatches = microbatches_};
    schedule.ranks.resize(profile_.ranks());
    for (int32_t step = all.step; step >= 0; step = steps_[step].before) {
      const Op& op = steps_[step].op;
      schedule.ranks[profile_.stages[op.stage].rank].push_back(op);
    }
    for (std::vector<Op>& row : schedule.ranks) std::ranges::reverse(row);
    return schedule;
  }

  const PipelineProfile& profile_;
  const int32_t microbatches_;
  const BackwardForm form_;
  const PipelineWays ways_;
  MemoryUnits memory_;
  std::vector<OpKind> kinds_ = {
      form_ == BackwardForm::kFull ? OpKind::kBackward : OpKind::kInputGradient, OpKind::kForward};
  std::vector<Step> steps_;
};

}  // namespace

absl::StatusOr<Schedule> MakeBeamSchedule(const PipelineProfile& profile, int32_t microbatches,
                                          BackwardForm form, int32_t width) {
  RETURN_IF_ERROR(Validate(profile));
  if (microbatches < 1 || width < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "beam: expected microbatches and a width, found ", microbatches, " and ", width));
  }
  RETURN_IF_ERROR(CheckMicrobatches(profile, microbatches));
  RETURN_IF_ERROR(CheckWholeSequences(profile));
  if (!profile.microbatch_scale.empty()) {
    return absl::InvalidArgumentError("beam: expected microbatches of one size");
  }
  return BeamSearch(profile, microbatches, form).Find(static_cast<size_t>(width));
}

}  // namespace crossmesh
