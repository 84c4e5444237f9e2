#include "planner/pipeline/search/testing/exact_schedule.h"

#include "common/base/status_macros.h"
#include "planner/pipeline/bound.h"
#include "planner/pipeline/memory.h"
#include "planner/pipeline/ways.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include <absl/container/flat_hash_map.h>
#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kRounding = 1e-9;

// An op that a rank may do next.
struct Choice {
  Op op;
  double begin = 0;
  double end = 0;
};

class ExactSearch {
 public:
  ExactSearch(const PipelineProfile& profile, int32_t microbatches, BackwardForm form,
              int64_t nodes_max)
      : profile_(profile),
        microbatches_(microbatches),
        form_(form),
        nodes_max_(nodes_max),
        ways_(FindWays(profile, form)),
        free_at_(profile.ranks(), 0),
        left_(profile.ranks(), 0),
        room_(RoomForActivations(profile)),
        done_(profile.stages.size() * kKinds, 0),
        ends_(profile.stages.size() * kKinds * microbatches, 0) {
    for (const StageProfile& stage : profile.stages) {
      left_[stage.rank] += microbatches * stage.seconds();
    }
    row_.stages = static_cast<int32_t>(profile.stages.size());
    row_.microbatches = microbatches;
    row_.ranks.resize(profile.ranks());
  }

  absl::StatusOr<ExactSchedule> Find() && {
    Search();
    best_.nodes = nodes_;
    if (nodes_ > nodes_max_) {
      return absl::ResourceExhaustedError(
          absl::StrCat("exact search: expected at most ", nodes_max_, " nodes, found more"));
    }
    if (best_.seconds == kNever) {
      return absl::ResourceExhaustedError("exact search: no order of ops fits the memory");
    }
    return std::move(best_);
  }

 private:
  static constexpr size_t kKinds = 3;  // forward, backward or input gradient, weight gradient

  static size_t KindOf(OpKind kind) {
    if (kind == OpKind::kForward) return 0;
    return GivesInputGradient(kind) ? 1 : 2;
  }
  MicrobatchIndex& Done(OpKind kind, StageIndex s) { return done_[s * kKinds + KindOf(kind)]; }
  double& EndOf(const Op& op) {
    return ends_[(op.stage * kKinds + KindOf(op.kind)) * microbatches_ + op.microbatch];
  }
  OpKind backward() const {
    return form_ == BackwardForm::kFull ? OpKind::kBackward : OpKind::kInputGradient;
  }

  // When the inputs of the stage's next op of the kind are there; never when they are not begun.
  double InputsAt(const Op& op) {
    if (op.microbatch == microbatches_) return kNever;
    double at = 0;
    const auto wait = [&](OpKind kind, StageIndex s, double way) {
      const Op input = {kind, s, op.microbatch};
      at = Done(kind, s) > op.microbatch ? std::max(at, EndOf(input) + way) : kNever;
    };
    if (op.kind == OpKind::kWeightGradient) {
      wait(backward(), op.stage, 0);
      return at;
    }
    const bool is_forward = op.kind == OpKind::kForward;
    if (!is_forward) wait(OpKind::kForward, op.stage, 0);
    for (const EdgeProfile& edge : profile_.edges) {
      if (at == kNever || (is_forward ? edge.to : edge.from) != op.stage) continue;
      const double way = is_forward ? edge.forward_seconds : edge.backward_seconds;
      wait(op.kind, is_forward ? edge.from : edge.to, profile_.passes(edge) ? way : 0);
    }
    return at;
  }

  std::vector<Choice> Choices() {
    std::vector<Choice> choices;
    for (StageIndex s = 0; s < std::ssize(profile_.stages); ++s) {
      const StageProfile& stage = profile_.stages[s];
      for (const OpKind kind : {backward(), OpKind::kForward, OpKind::kWeightGradient}) {
        if (kind == OpKind::kWeightGradient && form_ == BackwardForm::kFull) continue;
        const Op op = {kind, s, Done(kind, s)};
        const std::optional<ByteCount>& room = room_[stage.rank];
        if (kind == OpKind::kForward && room && *room < stage.activation_bytes()) continue;
        const double inputs = InputsAt(op);
        if (inputs == kNever) continue;
        const double begin = std::max(inputs, free_at_[stage.rank]);
        choices.push_back({op, begin, begin + profile_.SecondsOf(op)});
      }
    }
    return choices;
  }

  double Bound() {
    double bound = 0;
    for (RankIndex rank = 0; rank < profile_.ranks(); ++rank) {
      double tail = left_[rank] == 0 ? 0 : kNever;
      for (StageIndex s = 0; s < std::ssize(profile_.stages) && tail > 0; ++s) {
        if (profile_.stages[s].rank != rank) continue;
        tail = std::min(tail, form_ == BackwardForm::kFull ? ways_.tail[s] : 0);
      }
      bound = std::max(bound, free_at_[rank] + left_[rank] + tail);
    }
    for (StageIndex s = 0; s < std::ssize(profile_.stages); ++s) {
      const double at = free_at_[profile_.stages[s].rank];
      if (Done(OpKind::kForward, s) < microbatches_) {
        const double forwards =
            (microbatches_ - 1 - Done(OpKind::kForward, s)) * profile_.stages[s].forward_seconds;
        bound = std::max(bound, std::max(at, ways_.head[s]) + forwards + ways_.gap[s] +
                                    BackwardSeconds(profile_.stages[s], form_) + ways_.tail[s]);
      } else if (const int32_t left = microbatches_ - Done(backward(), s); left > 0) {
        bound =
            std::max(bound, at + left * BackwardSeconds(profile_.stages[s], form_) + ways_.tail[s]);
      }
    }
    return bound;
  }

  // Ends of the ops from `first` on that are done, whose outputs may still be waited for.
  void AddEnds(Op first, std::vector<double>& times) {
    for (const int32_t done = Done(first.kind, first.stage); first.microbatch < done;
         ++first.microbatch) {
      times.push_back(EndOf(first));
    }
  }

  // Was there a state with as much done in which nothing came later?
  bool IsDominated() {
    std::vector<double> times = free_at_;
    for (StageIndex s = 0; s < std::ssize(profile_.stages); ++s) {
      AddEnds({OpKind::kForward, s, Done(backward(), s)}, times);
      for (const EdgeProfile& edge : profile_.edges) {
        if (edge.to == s) AddEnds({backward(), s, Done(backward(), edge.from)}, times);
      }
    }
    std::vector<std::vector<double>>& known = known_[done_];
    for (const std::vector<double>& other : known) {
      if (std::ranges::equal(other, times, [](double a, double b) { return a <= b + kRounding; })) {
        return true;
      }
    }
    known.push_back(std::move(times));
    return false;
  }

  void Search() {
    if (++nodes_ > nodes_max_ || Bound() >= best_.seconds - kRounding || IsDominated()) return;
    const std::vector<Choice> choices = Choices();
    if (choices.empty()) {
      const bool is_complete =
          std::ranges::all_of(left_, [](double left) { return left < kRounding; });
      if (!is_complete) return;
      best_.seconds = *std::ranges::max_element(free_at_);
      best_.schedule = row_;
      return;
    }
    // Something must begin on this rank before the first of all ends that could be next.
    const Choice first = *std::ranges::min_element(choices, {}, &Choice::end);
    const RankIndex rank = profile_.stages[first.op.stage].rank;
    for (const Choice& choice : choices) {
      if (profile_.stages[choice.op.stage].rank != rank) continue;
      if (choice.op != first.op && choice.begin >= first.end - kRounding) continue;
      Do(choice, rank);
    }
  }

  void Do(const Choice& choice, RankIndex rank) {
    const Op& op = choice.op;
    const StageProfile& stage = profile_.stages[op.stage];
    const ByteCount taken = op.kind == OpKind::kForward ? stage.activation_bytes() : ByteCount(0);
    const ByteCount change = stage.FreedBy(op.kind) - taken;  // of the room
    const double free_at = std::exchange(free_at_[rank], choice.end);
    const double left = std::exchange(left_[rank], left_[rank] - profile_.SecondsOf(op));
    if (room_[rank]) *room_[rank] += change;
    ++Done(op.kind, op.stage);
    EndOf(op) = choice.end;
    row_.ranks[rank].push_back(op);
    Search();
    row_.ranks[rank].pop_back();
    --Done(op.kind, op.stage);
    if (room_[rank]) *room_[rank] -= change;
    left_[rank] = left;
    free_at_[rank] = free_at;
  }

  const PipelineProfile& profile_;
  const int32_t microbatches_;
  const BackwardForm form_;
  const int64_t nodes_max_;
  const PipelineWays ways_;
  std::vector<double> free_at_;                 // by rank
  std::vector<double> left_;                    // work, by rank
  std::vector<std::optional<ByteCount>> room_;  // by rank
  std::vector<MicrobatchIndex> done_;           // by stage and kind
  std::vector<double> ends_;                    // by stage, kind and microbatch
  Schedule row_;
  absl::flat_hash_map<std::vector<MicrobatchIndex>, std::vector<std::vector<double>>> known_;
  int64_t nodes_ = 0;
  ExactSchedule best_{.seconds = kNever};
};

}  // namespace

absl::StatusOr<ExactSchedule> FindExactSchedule(const PipelineProfile& profile,
                                                int32_t microbatches, BackwardForm form,
                                                int64_t nodes_max) {
  RETURN_IF_ERROR(ComputePipelineBound(profile, microbatches, form).status());
  if (!profile.microbatch_scale.empty()) {
    return absl::InvalidArgumentError("exact schedule: expected microbatches of one size");
  }
  RETURN_IF_ERROR(CheckWholeSequences(profile));
  return ExactSearch(profile, microbatches, form, nodes_max).Find();
}

}  // namespace crossmesh
