#include "planner/pipeline/search/list_schedule.h"

#include "common/base/format.h"
#include "common/base/status_macros.h"
#include "planner/pipeline/event_times.h"
#include "planner/pipeline/memory.h"
#include "planner/pipeline/ways.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// What the ops of one kind and stage wait for.
struct OpQueue {
  MicrobatchIndex next = 0;
  std::vector<int32_t> missing;  // by microbatch: inputs that are not under way yet
  std::vector<double> inputs;    // by microbatch: when those that are will all be there

  // When the next op could begin, as far as is known.
  double At() const {
    return next < std::ssize(missing) && missing[next] == 0 ? inputs[next] : EventTimes::kNever;
  }
};

struct StageState {
  OpQueue forward;
  OpQueue backward;
  MicrobatchIndex weights = 0;  // the next gradient of them
};

struct RankState {
  std::vector<StageIndex> stages;  // the last one first
  double free_at = 0;
  double leeway = 0;              // how long it may still wait
  std::optional<ByteCount> room;  // nothing: no limit
  ByteCount microbatch_bytes;     // of all its stages
  MicrobatchIndex taken = 0;
  // Where memory is set aside by stage: what a microbatch holds, and what it will still need.
  std::vector<ByteCount> held, needed;
  MicrobatchIndex first = 0, end = 0;  // from the first that has not ended to the last that began
};

struct Choice {
  OpKind kind = OpKind::kForward;
  StageIndex stage = 0;
  double at = EventTimes::kNever;
};

class Lister {
 public:
  Lister(const PipelineProfile& profile, int32_t microbatches, const ListOptions& options)
      : profile_(profile),
        microbatches_(microbatches),
        options_(options),
        ways_(FindWays(profile, options.form)),
        stages_(profile.stages.size()),
        ranks_(profile.ranks()),
        wakeups_(profile.ranks()),
        into_(profile.stages.size()),
        out_of_(profile.stages.size()) {
    schedule_ = {.stages = static_cast<int32_t>(profile.stages.size()),
                 .microbatches = microbatches};
    schedule_.ranks.resize(profile.ranks());
    for (const EdgeProfile& edge : profile.edges) {
      into_[edge.to].push_back(&edge);
      out_of_[edge.from].push_back(&edge);
    }
    PrepareRanks();
    PrepareStages();
  }

  absl::StatusOr<Schedule> List() && {
    for (RankIndex rank = 0; rank < profile_.ranks(); ++rank) {
      RETURN_IF_ERROR(CheckRoom(rank));
      Wake(rank, 0);
    }
    while (wakeups_.next() < EventTimes::kNever) {
      now_ = wakeups_.next();
      const RankIndex rank = wakeups_.first();
      wakeups_.Set(rank, EventTimes::kNever);
      BeginNext(rank);
    }
    return std::move(schedule_);
  }

 private:
  void PrepareRanks() {
    const std::vector<std::optional<ByteCount>> room = RoomForActivations(profile_);
    for (RankIndex rank = 0; rank < profile_.ranks(); ++rank) {
      ranks_[rank].leeway = options_.target_seconds;
      ranks_[rank].room = room[rank];
    }
  }

  void PrepareStages() {
    for (StageIndex s = schedule_.stages - 1; s >= 0; --s) {
      const StageProfile& stage = profile_.stages[s];
      RankState& rank = ranks_[stage.rank];
      rank.stages.push_back(s);
      rank.microbatch_bytes += stage.activation_bytes();
      // What the target leaves beside the rank's own work is what it can afford to wait.
      rank.leeway -= profile_.SumOfScales(microbatches_) * stage.seconds();
      const auto prepare = [this](OpQueue& queue, size_t inputs) {
        queue.missing.assign(microbatches_, static_cast<int32_t>(inputs));
        queue.inputs.assign(microbatches_, 0);
      };
      prepare(stages_[s].forward, into_[s].size());
      prepare(stages_[s].backward, out_of_[s].size() + 1);  // its own forward op
    }
    for (RankState& rank : ranks_) {
      if (!options_.by_stage || rank.stages.size() == 1 || !rank.room) continue;
      rank.held.assign(microbatches_, ByteCount(0));
      rank.needed.assign(microbatches_, rank.microbatch_bytes);
    }
  }

  absl::Status CheckRoom(RankIndex rank) const {
    const RankState& state = ranks_[rank];
    if (!state.room || *state.room >= state.microbatch_bytes) return absl::OkStatus();
    return absl::ResourceExhaustedError(
        absl::StrCat("rank ", rank, ": expected room for a microbatch of all its stages, ",
                     FormatBytes(state.microbatch_bytes), ", found ", FormatBytes(*state.room)));
  }

  double ForwardAt(StageIndex s) const {
    const OpQueue& queue = stages_[s].forward;
    const RankState& rank = ranks_[profile_.stages[s].rank];
    const bool has_window = queue.next - stages_[s].backward.next < options_.windows[s];
    return has_window && queue.At() < EventTimes::kNever && HasRoom(rank, s) ? queue.At()
                                                                             : EventTimes::kNever;
  }

  bool HasRoom(const RankState& rank, StageIndex s) const {
    const MicrobatchIndex next = stages_[s].forward.next;
    if (!rank.room) return true;
    if (rank.held.empty()) return next < rank.taken || *rank.room >= rank.microbatch_bytes;
    const ByteCount bytes = profile_.stages[s].activation_bytes();
    ByteCount room = *rank.room - bytes;
    if (room < ByteCount(0)) return false;
    // Each microbatch gives back what it holds before the next one needs the rest.
    for (MicrobatchIndex m = rank.first; m < rank.end && room < rank.microbatch_bytes; ++m) {
      const ByteCount taken = m == next ? bytes : ByteCount(0);
      if (room < rank.needed[m] - taken) return false;
      room += rank.held[m] + taken;
    }
    return true;
  }

  // A rank that is busy looks again at the end of its op, and one that waits finds at its wakeup
  // whatever comes later: more wakeups than the first would find nothing.
  void Wake(RankIndex rank, double seconds) {
    seconds = std::max(seconds, ranks_[rank].free_at);
    if (seconds < wakeups_.of(rank)) wakeups_.Set(rank, seconds);
  }

  void BeginNext(RankIndex rank) {
    Choice forward{.kind = OpKind::kForward};
    Choice backward{.kind = options_.form == BackwardForm::kFull ? OpKind::kBackward
                                                                 : OpKind::kInputGradient};
    std::optional<Op> weights;  // the oldest
    for (const StageIndex s : ranks_[rank].stages) {
      if (const double at = ForwardAt(s); at < forward.at) forward = {forward.kind, s, at};
      const double at = stages_[s].backward.At();
      if (at < backward.at) backward = {backward.kind, s, at};
      if (options_.form == BackwardForm::kFull) continue;
      const MicrobatchIndex next = stages_[s].weights;
      if (next < stages_[s].backward.next && (!weights || next < weights->microbatch)) {
        weights = {OpKind::kWeightGradient, s, next};
      }
    }
    // Backward first: it frees memory, and earlier stages wait for it.
    const Choice& first = IsRushing(forward) || backward.at > now_ ? forward : backward;
    if (first.at <= now_) return Begin(first.kind, first.stage);
    const double next = std::min(forward.at, backward.at);
    if (weights && MayBegin(*weights, next)) return Begin(weights->kind, weights->stage);
    if (next < EventTimes::kNever) Wake(rank, next);
  }

  bool IsRushing(const Choice& forward) const {
    if (forward.at > now_) return false;
    const int32_t left = microbatches_ - stages_[forward.stage].forward.next;
    return left * BackwardSeconds(profile_.stages[forward.stage], options_.form) <=
           options_.rush * ways_.gap[forward.stage];
  }

  // Of a gradient of the weights, when the next other op can begin.
  bool MayBegin(const Op& weights, double next) const {
    if (now_ + profile_.SecondsOf(weights) * (1 - options_.overlap) <= next) return true;
    return options_.target_seconds > 0 &&
           next - now_ > ranks_[profile_.stages[weights.stage].rank].leeway;
  }

  void Begin(OpKind kind, StageIndex s) {
    StageState& stage = stages_[s];
    RankState& rank = ranks_[profile_.stages[s].rank];
    MicrobatchIndex& next = kind == OpKind::kForward          ? stage.forward.next
                            : kind == OpKind::kWeightGradient ? stage.weights
                                                              : stage.backward.next;
    const Op op = {kind, s, next++};
    schedule_.ranks[profile_.stages[s].rank].push_back(op);
    rank.leeway -= now_ - rank.free_at;
    rank.free_at = now_ + profile_.SecondsOf(op);
    Account(op, rank);
    Wake(profile_.stages[s].rank, rank.free_at);
    const double scale = profile_.ScaleOf(op.microbatch);
    if (kind == OpKind::kForward) {
      for (const EdgeProfile* edge : out_of_[s]) {
        Send(op, edge->to, edge->forward_seconds * scale, stages_[edge->to].forward);
      }
      Send(op, s, 0, stage.backward);
    } else if (GivesInputGradient(kind)) {
      for (const EdgeProfile* edge : into_[s]) {
        Send(op, edge->from, edge->backward_seconds * scale, stages_[edge->from].backward);
      }
    }
  }

  void Account(const Op& op, RankState& rank) {
    if (!rank.room) return;
    if (!rank.held.empty()) return AccountByStage(op, rank);
    *rank.room += profile_.stages[op.stage].FreedBy(op.kind);
    if (op.kind != OpKind::kForward || op.microbatch < rank.taken) return;
    // For all stages of the rank at once: a later stage must never wait for room that an earlier
    // one holds.
    *rank.room -= rank.microbatch_bytes;
    ++rank.taken;
  }

  void AccountByStage(const Op& op, RankState& rank) {
    const StageProfile& stage = profile_.stages[op.stage];
    const MicrobatchIndex m = op.microbatch;
    ByteCount taken = ByteCount(0) - stage.FreedBy(op.kind);
    if (op.kind == OpKind::kForward) {
      taken = stage.activation_bytes();
      rank.needed[m] -= taken;
      rank.end = std::max(rank.end, m + 1);
    }
    *rank.room -= taken;
    rank.held[m] += taken;
    while (rank.first < rank.end && rank.held[rank.first] == ByteCount(0) &&
           rank.needed[rank.first] == ByteCount(0)) {
      ++rank.first;
    }
  }

  // The output of an op that has just begun.
  void Send(const Op& op, StageIndex to, double seconds, OpQueue& queue) {
    const RankIndex rank = profile_.stages[op.stage].rank, other = profile_.stages[to].rank;
    const double at = ranks_[rank].free_at + (rank == other ? 0 : seconds);
    queue.inputs[op.microbatch] = std::max(queue.inputs[op.microbatch], at);
    if (--queue.missing[op.microbatch] == 0) Wake(other, queue.inputs[op.microbatch]);
  }

  const PipelineProfile& profile_;
  const int32_t microbatches_;
  const ListOptions& options_;
  const PipelineWays ways_;
  std::vector<StageState> stages_;
  std::vector<RankState> ranks_;
  EventTimes wakeups_;  // by rank: when it looks for something to do
  std::vector<std::vector<const EdgeProfile*>> into_, out_of_;  // by stage
  double now_ = 0;
  Schedule schedule_;
};

}  // namespace

absl::StatusOr<Schedule> MakeListSchedule(const PipelineProfile& profile, int32_t microbatches,
                                          const ListOptions& options) {
  RETURN_IF_ERROR(Validate(profile));
  if (microbatches < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("list: expected microbatches, found ", microbatches));
  }
  RETURN_IF_ERROR(CheckMicrobatches(profile, microbatches));
  RETURN_IF_ERROR(CheckWholeSequences(profile));
  if (options.windows.size() != profile.stages.size() || std::ranges::min(options.windows) < 1) {
    return absl::InvalidArgumentError(absl::StrCat("list: expected ", profile.stages.size(),
                                                   " windows of at least 1, found others"));
  }
  return Lister(profile, microbatches, options).List();
}

}  // namespace crossmesh
