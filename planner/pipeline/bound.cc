#include "planner/pipeline/bound.h"

#include "common/base/format.h"
#include "common/base/status_macros.h"
#include "planner/pipeline/memory.h"
#include "planner/pipeline/shared_rank_bound.h"
#include "planner/pipeline/ways.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// In the order of PipelineBoundKind.
constexpr std::array<absl::string_view, 5> kKindNames = {"work", "startup", "ramps", "window",
                                                         "ports"};
static_assert(kKindNames.size() == kAllPipelineBoundKinds.size());

class BoundFinder {
 public:
  BoundFinder(const PipelineProfile& profile, int32_t microbatches, BackwardForm form,
              TransferModel model)
      : profile_(profile),
        microbatches_(microbatches),
        form_(form),
        model_(model),
        least_(profile.OfScale(profile.LeastScale())),
        work_(profile.SumOfScales(microbatches)),
        ways_(FindWays(least_, form)),
        room_(RoomForActivations(profile)),
        stages_of_rank_(profile.ranks()),
        saved_by_pairs_(profile.ranks(), 0) {
    for (StageIndex s = 0; s < std::ssize(profile.stages); ++s) {
      stages_of_rank_[profile.stages[s].rank].push_back(s);
    }
    FindSavings();
  }

  // Of a rank alone: it may begin when all that it needs is there, and others end after it.
  absl::StatusOr<PipelineBound> FindSpan() && {
    is_span_ = true;
    for (std::vector<double>* none :
         {&ways_.head, &ways_.tail, &ways_.head_pace, &ways_.tail_pace}) {
      std::ranges::fill(*none, 0);
    }
    return std::move(*this).Find();
  }

  absl::StatusOr<PipelineBound> Find() && {
    // Without room for one microbatch there is no schedule; a window of 0 is what the terms below
    // divide by.
    for (StageIndex s = 0; s < std::ssize(profile_.stages); ++s) RETURN_IF_ERROR(CheckRoom(s));
    for (RankIndex rank = 0; rank < profile_.ranks(); ++rank) {
      AddWork(rank);
      if (stages_of_rank_[rank].size() > 1) AddSharedRank(rank);
    }
    for (StageIndex s = 0; s < std::ssize(profile_.stages); ++s) {
      // A rank of several stages has other ops to do while one of them waits: AddSharedRank.
      if (stages_of_rank_[StageAt(s).rank].size() == 1) {
        AddStartup(s);
        AddRamps(s);
      }
      AddWindows(s);
    }
    if (!is_span_) AddPorts();
    return std::move(bound_);
  }

 private:
  const StageProfile& StageAt(StageIndex s) const { return profile_.stages[s]; }
  double Backward(StageIndex s) const { return BackwardSeconds(least_.stages[s], form_); }

  void Add(PipelineBoundKind kind, double seconds, std::string place) {
    PipelineBound::Term& term = bound_.terms[static_cast<size_t>(kind)];
    if (seconds > term.seconds) term = {seconds, std::move(place)};
  }

  // How many lots of that size fit beside what is always there.
  int64_t Fitting(RankIndex rank, ByteCount bytes) const {
    const std::optional<ByteCount>& room = room_[rank];
    if (!room || bytes == ByteCount(0)) return microbatches_;
    return std::min<int64_t>(*room / bytes, microbatches_);
  }

  absl::Status CheckRoom(StageIndex s) const {
    const RankIndex rank = StageAt(s).rank;
    const std::optional<ByteCount>& room = room_[rank];
    if (!room || *room >= StageAt(s).activation_bytes()) return absl::OkStatus();
    const ByteCount least = *profile_.rank_bytes_max[rank] - *room + StageAt(s).activation_bytes();
    return absl::ResourceExhaustedError(
        absl::StrCat("rank ", rank, ": expected room for a microbatch of stage ", s,
                     ", which takes ", FormatBytes(least), " (", least.value(),
                     " bytes) in all, found ", FormatBytes(*profile_.rank_bytes_max[rank])));
  }

  // All ops of a rank, in as little time as pairs may take.
  double WorkOf(RankIndex rank) const {
    double seconds = 0;
    for (const StageIndex s : stages_of_rank_[rank]) seconds += StageAt(s).seconds();
    return work_ * (seconds - saved_by_pairs_[rank]);
  }

  // The most that pairs can save of the forward ops of a stage for a microbatch, each of which is
  // in one pair at most, and so of those of each rank.
  void FindSavings() {
    std::vector<double> saved(profile_.stages.size(), 0);
    for (const PairProfile& pair : profile_.pairs) {
      const double of_pair = StageAt(pair.forward).forward_seconds +
                             StageAt(pair.backward).backward_seconds() - pair.seconds;
      saved[pair.forward] = std::max(saved[pair.forward], of_pair);
    }
    for (size_t s = 0; s < saved.size(); ++s) saved_by_pairs_[profile_.stages[s].rank] += saved[s];
  }

  void AddWork(RankIndex rank) {
    double head = kInfinity, tail = kInfinity, split_work = 0;
    for (const StageIndex s : stages_of_rank_[rank]) {
      head = std::min(head, ways_.head[s]);
      tail = std::min(tail, ways_.tail[s]);
      // Of stages that share a rank only the shortest way in and out is sure.
      split_work += work_ * (StageAt(s).forward_seconds + BackwardSeconds(StageAt(s), form_));
    }
    split_work -= work_ * saved_by_pairs_[rank];
    const std::string place = absl::StrCat("rank ", rank);
    // In the split form gradients of the weights may come while the tail runs on other ranks, or in
    // a pair, so it does not add to them: the larger of both sums holds.
    Add(PipelineBoundKind::kWork, head + split_work + tail, place);
    Add(PipelineBoundKind::kWork, head + WorkOf(rank), place);
  }

  void AddSharedRank(RankIndex rank) {
    const bool is_split = form_ == BackwardForm::kSplit;
    SharedRank shared{.room = room_[rank],
                      .microbatches = microbatches_,
                      .work = WorkOf(rank),
                      .is_split = is_split,
                      .is_uniform = profile_.microbatch_scale.empty()};
    for (const StageIndex s : stages_of_rank_[rank]) {
      const StageProfile& stage = StageAt(s);
      const StageProfile& least = least_.stages[s];
      shared.stages.push_back(
          {.head = ways_.head[s],
           .gap = ways_.gap[s],
           .tail = ways_.tail[s],
           .head_pace = ways_.head_pace[s],
           .tail_pace = ways_.tail_pace[s],
           .round_trip = ways_.gap[s] + Backward(s),
           .forward = stage.forward_seconds,
           .backward = BackwardSeconds(stage, form_),
           .weights = is_split ? stage.weight_gradient_seconds : 0,
           .backward_bytes = is_split ? least.input_gradient_bytes : least.activation_bytes(),
           .weights_bytes = is_split ? least.weight_gradient_bytes : ByteCount(0),
           .least_weights = is_split ? least.weight_gradient_seconds : 0});
    }
    const std::string place = absl::StrCat("rank ", rank);
    Add(PipelineBoundKind::kRamps, RampsOfSharedRank(shared), place);
    Add(PipelineBoundKind::kWindow, WindowOfSharedRank(shared), place);
  }

  // Of a stage alone on its rank: what it can do before its first backward op is forward ops.
  void AddStartup(StageIndex s) {
    const StageProfile& stage = StageAt(s);
    // Until the first microbatch is back, the stage can do as many forward ops as it has memory
    // for.
    const double idle = ways_.gap[s] - static_cast<double>(Window(s)) * stage.forward_seconds;
    const double tail = form_ == BackwardForm::kFull ? ways_.tail[s] : 0;
    Add(PipelineBoundKind::kStartup,
        ways_.head[s] + std::max(0.0, idle) + WorkOf(stage.rank) + tail, absl::StrCat("stage ", s));
  }

  // The same at both ends, and with the pace at which microbatches can come and go.
  void AddRamps(StageIndex s) {
    const double filling = FillingIdle(s), emptying = EmptyingIdle(s);
    const double tail = std::max(0.0, ways_.tail[s] - DelayedSeconds(s));
    // When all microbatches fit, the last one may begin before the first is back.
    const double idle = Window(s) < microbatches_ ? filling + std::max(emptying, tail)
                                                  : std::max(filling + tail, emptying);
    Add(PipelineBoundKind::kRamps, ways_.head[s] + WorkOf(StageAt(s).rank) + idle,
        absl::StrCat("stage ", s));
  }

  // How long a stage waits between the head and the first backward op.
  double FillingIdle(StageIndex s) const {
    const double forward = StageAt(s).forward_seconds, gap = ways_.gap[s];
    const double held = static_cast<double>(Window(s)) * forward;
    return std::max(0.0, gap - std::min(held, PacedSeconds(gap, ways_.head_pace[s], forward)));
  }

  // How long it waits at the end. From its last forward op on it has what its memory holds to do.
  double EmptyingIdle(StageIndex s) const {
    const double backward = BackwardSeconds(StageAt(s), form_), way = ways_.gap[s] + Backward(s);
    const double held = static_cast<double>(Window(s)) * backward;
    const double busy = StageAt(s).forward_seconds + DelayedSeconds(s) +
                        std::min(held, PacedSeconds(way, ways_.tail_pace[s], backward));
    return way + ways_.tail[s] - busy;
  }

  // What ops of that length can do in that time when they come no closer than the pace.
  static double PacedSeconds(double seconds, double pace, double op) {
    // Ops that take no time may come at any rate.
    if (pace == 0) return kInfinity;
    const double ops = std::floor(seconds / pace);
    return ops * op + std::min(op, seconds - ops * pace);
  }

  int64_t Window(StageIndex s) const {
    return Fitting(StageAt(s).rank, least_.stages[s].activation_bytes());
  }

  // The gradients of the weights that its memory holds.
  double DelayedSeconds(StageIndex s) const {
    if (form_ == BackwardForm::kFull) return 0;
    const ByteCount bytes = least_.stages[s].weight_gradient_bytes;
    return static_cast<double>(Fitting(StageAt(s).rank, bytes)) *
           StageAt(s).weight_gradient_seconds;
  }

  void AddWindows(StageIndex s) {
    const StageProfile& stage = least_.stages[s];
    const double round_trip = ways_.gap[s] + Backward(s);
    const double longest = std::max(stage.forward_seconds, Backward(s));
    AddWindow(s, {.microbatch_bytes = stage.activation_bytes(),
                  .round_trip = round_trip,
                  .longest_op = longest,
                  .tail = ways_.tail[s]});
    if (form_ == BackwardForm::kFull) return;
    AddWindow(s, {.microbatch_bytes = stage.weight_gradient_bytes,
                  .round_trip = round_trip + stage.weight_gradient_seconds,
                  .longest_op = std::max(longest, stage.weight_gradient_seconds)});
  }

  // What a microbatch holds of a stage's memory, and for how long.
  struct Held {
    ByteCount microbatch_bytes;
    double round_trip = 0;
    double longest_op = 0;
    double tail = 0;
  };

  // Every window-th microbatch waits for the round trip of the one a window before it; those that
  // are left over come at least the longest op apart.
  void AddWindow(StageIndex s, const Held& held) {
    const int64_t window = Fitting(StageAt(s).rank, held.microbatch_bytes);
    const int64_t trips = (microbatches_ - 1) / window + 1;
    const int64_t left = (microbatches_ - 1) % window;
    Add(PipelineBoundKind::kWindow,
        ways_.head[s] + static_cast<double>(trips) * held.round_trip +
            static_cast<double>(left) * held.longest_op + held.tail,
        absl::StrCat("stage ", s));
  }

  struct PortTerm {
    double busy = 0;
    double head = kInfinity;  // before the port can have anything to do
    double tail = kInfinity;  // after it has done the last
    TransferIndex transfer = 0;
  };

  void AddPorts() {
    const TransferPorts ports(profile_, model_);
    std::vector<PortTerm> terms(ports.size());
    for (TransferIndex transfer = 0; transfer < 2 * std::ssize(profile_.edges); ++transfer) {
      const EdgeProfile& edge = profile_.edges[transfer / 2];
      const double trip = ways_.gap[edge.to] + Backward(edge.to);
      const bool is_forward = OpTable::IsForward(transfer);
      const double seconds = is_forward ? edge.forward_seconds : edge.backward_seconds;
      const double head = is_forward
                              ? ways_.head[edge.from] + least_.stages[edge.from].forward_seconds
                              : ways_.head[edge.to] + trip;
      const double tail =
          is_forward ? trip + ways_.tail[edge.to] : Backward(edge.from) + ways_.tail[edge.from];
      for (const PortIndex port : ports.Of(transfer)) {
        terms[port].busy += work_ * seconds;
        terms[port].head = std::min(terms[port].head, head);
        terms[port].tail = std::min(terms[port].tail, tail);
        terms[port].transfer = transfer;
      }
    }
    for (const PortTerm& term : terms) {
      if (term.head == kInfinity) continue;  // no transfer has it
      const EdgeProfile& edge = profile_.edges[term.transfer / 2];
      Add(PipelineBoundKind::kPorts, term.head + term.busy + term.tail,
          absl::StrCat("transfer ", edge.from, OpTable::IsForward(term.transfer) ? "F" : "B",
                       edge.to));
    }
    if (model_ == TransferModel::kBlocking) AddBlockingRanks();
  }

  // Transfers are work of both ranks.
  void AddBlockingRanks() {
    std::vector<double> busy;
    for (RankIndex rank = 0; rank < profile_.ranks(); ++rank) busy.push_back(WorkOf(rank));
    // A rank that blocks is busy from its first op or message on; nothing can be said of its end.
    std::vector<double> head(profile_.ranks(), kInfinity);
    for (StageIndex s = 0; s < std::ssize(profile_.stages); ++s) {
      head[StageAt(s).rank] = std::min(head[StageAt(s).rank], ways_.head[s]);
    }
    for (const EdgeProfile& edge : profile_.edges) {
      if (!profile_.passes(edge)) continue;
      const RankIndex from = StageAt(edge.from).rank, to = StageAt(edge.to).rank;
      const double seconds = work_ * (edge.forward_seconds + edge.backward_seconds);
      busy[from] += seconds;
      busy[to] += seconds;
      head[to] =
          std::min(head[to], ways_.head[edge.from] + least_.stages[edge.from].forward_seconds);
    }
    for (RankIndex rank = 0; rank < profile_.ranks(); ++rank) {
      Add(PipelineBoundKind::kPorts, head[rank] + busy[rank], absl::StrCat("rank ", rank));
    }
  }

  const PipelineProfile& profile_;
  const int32_t microbatches_;
  const BackwardForm form_;
  const TransferModel model_;
  const PipelineProfile least_;  // if all microbatches were as small as the smallest
  const double work_;            // of all microbatches, in those of the largest
  PipelineWays ways_;            // of the smallest
  bool is_span_ = false;
  std::vector<std::optional<ByteCount>> room_;  // by rank: for activations
  std::vector<std::vector<StageIndex>> stages_of_rank_;
  std::vector<double> saved_by_pairs_;  // by rank: for a microbatch of the largest size
  PipelineBound bound_;
};

absl::Status CheckRequest(const PipelineProfile& profile, int32_t microbatches) {
  RETURN_IF_ERROR(Validate(profile));
  if (microbatches < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("pipeline: expected microbatches, found ", microbatches));
  }
  return CheckMicrobatches(profile, microbatches);
}

}  // namespace

absl::string_view PipelineBoundKindName(PipelineBoundKind kind) {
  return kKindNames[static_cast<size_t>(kind)];
}

PipelineBoundKind PipelineBound::kind() const {
  return *std::ranges::max_element(kAllPipelineBoundKinds, {},
                                   [this](PipelineBoundKind k) { return at(k).seconds; });
}

absl::StatusOr<PipelineBound> ComputePipelineBound(const PipelineProfile& profile,
                                                   int32_t microbatches, BackwardForm form,
                                                   TransferModel model) {
  RETURN_IF_ERROR(CheckRequest(profile, microbatches));
  return BoundFinder(profile, microbatches, form, model).Find();
}

absl::StatusOr<PipelineBound> ComputeSpanBound(const PipelineProfile& profile, int32_t microbatches,
                                               BackwardForm form) {
  RETURN_IF_ERROR(CheckRequest(profile, microbatches));
  return BoundFinder(profile, microbatches, form, TransferModel::kLatency).FindSpan();
}

}  // namespace crossmesh
