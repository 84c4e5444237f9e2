#include "planner/pipeline/timeline.h"

#include "common/base/status_macros.h"
#include "planner/pipeline/blocking_timeline.h"
#include "planner/pipeline/order_proof.h"
#include "planner/pipeline/shared_ports.h"
#include "planner/pipeline/waiting_ranks.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

namespace crossmesh {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// An op that has begun. Ordered for a heap that gives the one that ends first.
struct Running {
  double end = 0;
  double begin = 0;
  RankIndex rank = 0;

  friend bool operator<(const Running& a, const Running& b) {
    if (a.end != b.end) return a.end > b.end;
    return a.begin != b.begin ? a.begin > b.begin : a.rank > b.rank;
  }
};

class Runner {
 public:
  Runner(const OpTable& ops, TransferModel model, const MessagePlaces& places)
      : ops_(ops),
        ports_(ops.profile(), model),
        places_(places),
        taken_by_(places.size(), OpTable::kNone),
        ended_(ops.size(), false),
        is_timed_(IsShared(model) || !places.empty() ? ops.messages() : 0, false),
        waiting_(ops.size() + static_cast<int32_t>(is_timed_.size()), ops.profile().ranks()),
        port_free_(ports_.size(), 0) {
    run_.ops.resize(ops.size());
    run_.messages.resize(ops.messages());
    for (MessageIndex message = 0; message < std::ssize(places); ++message) {
      if (places[message] != OpTable::kNone) taken_by_[places[message]] = message;
    }
    for (RankIndex rank = 0; rank < ops.profile().ranks(); ++rank) next_.push_back(ops.first(rank));
    if (IsShared(model)) shared_.emplace(ops, ports_);
  }

  absl::StatusOr<PipelineTimeline> Run() && {
    for (RankIndex rank = 0; rank < std::ssize(next_); ++rank) BeginNext(rank);
    for (;;) {
      const double arrival = shared_ ? shared_->next_end() : kNever;
      if (running_.empty() && arrival == kNever) break;
      if (!running_.empty() && running_.front().end < arrival) {
        Finish(Pop());
      } else {
        const auto [message, passing] = shared_->TakeNext();
        Pass(message, passing);
      }
    }
    if (std::ranges::find(ended_, false) == ended_.end()) return std::move(run_);
    // Where messages have places of their own, ranks are stuck only when an op waits for itself,
    // and the proof names the circle.
    RETURN_IF_ERROR(ProveOrder(ops_));
    return StuckForPlaces();
  }

 private:
  void BeginNext(RankIndex rank) {
    const OpIndex step = next_[rank];
    if (step == ops_.first(rank + 1)) return;
    const OpIndex waited = FindWaited(step);
    if (waited != OpTable::kNone) return waiting_.Add(rank, waited);
    // An input of the same rank is there once the op before this one has ended.
    double begin = step == ops_.first(rank) ? 0 : run_.ops[step - 1].end;
    for (OpIndex index = step; index < ops_.EndOf(step); ++index) {
      begin = std::max(begin, MessagesAt(ops_.op(index)));
    }
    const TimeSpan span = {begin, begin + ops_.SecondsOfStep(step)};
    for (OpIndex index = step; index < ops_.EndOf(step); ++index) run_.ops[index] = span;
    Push({span.end, begin, rank});
  }

  // When the messages of an op are there, and have left its places.
  double MessagesAt(const Op& op) const {
    double at = 0;
    for (const TransferIndex transfer : ops_.TransfersInto(op)) {
      at = std::max(at, run_.messages[ops_.MessageOf(transfer, op.microbatch)].end);
    }
    for (const TransferIndex transfer : ops_.TransfersOutOf(op)) {
      const MessageIndex before = PlaceOf(ops_.MessageOf(transfer, op.microbatch));
      if (before != OpTable::kNone) at = std::max(at, run_.messages[before].end);
    }
    return at;
  }

  void Finish(const Running& running) {
    const OpIndex step = next_[running.rank];
    const OpIndex end = ops_.EndOf(step);
    next_[running.rank] = end;
    // Sent before other ops begin: those that wait for this output need to know when it arrives.
    for (OpIndex index = step; index < end; ++index) {
      const Op& op = ops_.op(index);
      ended_[index] = true;
      for (const TransferIndex transfer : ops_.TransfersOutOf(op)) {
        Send(transfer, op.microbatch, running.end);
      }
      if (!places_.empty()) GiveUpPlaces(op);
    }
    // Where messages are timed, ranks wait for these: an input of the same rank that has not ended
    // stands after the op that needs it, and never will.
    for (OpIndex index = step; is_timed_.empty() && index < end; ++index) {
      waiting_.Release(index, [this](RankIndex rank) { BeginNext(rank); });
    }
    BeginNext(running.rank);
  }

  void Send(TransferIndex transfer, MicrobatchIndex m, double begin) {
    if (!ops_.Passes(transfer)) return;
    const MessageIndex message = ops_.MessageOf(transfer, m);
    if (const MessageIndex before = PlaceOf(message); before != OpTable::kNone) {
      const OpIndex consumer = ConsumerOf(before);
      if (!ended_[consumer]) return;  // sent when that one ends
      begin = std::max(begin, run_.ops[consumer].end);
    }
    const auto& ports = ports_.Of(transfer);
    if (shared_ && !ports.empty()) return shared_->Send(message, begin);
    for (const PortIndex port : ports) begin = std::max(begin, port_free_[port]);
    const double end = begin + ops_.SecondsOf(transfer, m);
    for (const PortIndex port : ports) port_free_[port] = end;
    Pass(message, {begin, end});
  }

  // Whatever waits for the message or its places knows when they are there.
  void Pass(MessageIndex message, const TimeSpan& passing) {
    run_.messages[message] = passing;
    if (is_timed_.empty()) return;
    is_timed_[message] = true;
    waiting_.Release(ops_.size() + message, [this](RankIndex rank) { BeginNext(rank); });
  }

  // The messages that an op has used make place for others, which may be there already.
  void GiveUpPlaces(const Op& op) {
    for (const TransferIndex transfer : ops_.TransfersInto(op)) {
      const MessageIndex next = taken_by_[ops_.MessageOf(transfer, op.microbatch)];
      if (next == OpTable::kNone || is_timed_[next]) continue;
      const MicrobatchIndex m = next % ops_.schedule().microbatches;
      const OpIndex producer = ops_.ProducerOf(transfer, m);
      if (ended_[producer]) Send(transfer, m, run_.ops[producer].end);
    }
  }

  MessageIndex PlaceOf(MessageIndex message) const {
    return places_.empty() ? OpTable::kNone : places_[message];
  }
  OpIndex ConsumerOf(MessageIndex message) const {
    const int32_t microbatches = ops_.schedule().microbatches;
    return ops_.ConsumerOf(message / microbatches, message % microbatches);
  }

  // What a step waits for: an op, or a message, as a number after those of the ops.
  OpIndex FindWaited(OpIndex step) const {
    const auto has_ended = [this](OpIndex op) { return ended_[op]; };
    if (is_timed_.empty()) return ops_.FindWaitedByStep(step, has_ended);
    for (OpIndex index = step; index < ops_.EndOf(step); ++index) {
      const OpIndex waited = FindUntimed(ops_.op(index));
      if (waited != OpTable::kNone) return waited;
    }
    return OpTable::kNone;
  }

  // An input that comes from the same rank and has not ended; or a message that comes in, or has a
  // place that the op's output takes, and of which it is not known yet when it will have passed.
  OpIndex FindUntimed(const Op& op) const {
    const OpIndex local = ops_.LocalInput(op);
    if (local != OpTable::kNone && !ended_[local]) return local;
    for (const TransferIndex transfer : ops_.TransfersInto(op)) {
      if (!ops_.Passes(transfer)) {
        const OpIndex producer = ops_.ProducerOf(transfer, op.microbatch);
        if (!ended_[producer]) return producer;
        continue;
      }
      const MessageIndex message = ops_.MessageOf(transfer, op.microbatch);
      if (!is_timed_[message]) return ops_.size() + message;
    }
    for (const TransferIndex transfer : ops_.TransfersOutOf(op)) {
      const MessageIndex before = PlaceOf(ops_.MessageOf(transfer, op.microbatch));
      if (before != OpTable::kNone && !is_timed_[before]) return ops_.size() + before;
    }
    return OpTable::kNone;
  }

  absl::Status StuckForPlaces() const {
    std::vector<std::string> stuck;
    for (RankIndex rank = 0; rank < std::ssize(next_); ++rank) {
      if (next_[rank] == ops_.first(rank + 1)) continue;
      stuck.push_back(absl::StrCat("rank ", rank, " at ", ops_.NameOfStep(next_[rank])));
    }
    return absl::ResourceExhaustedError(absl::StrCat(
        "expected memory for more messages, found ranks that would wait for each other "
        "for ever: ",
        absl::StrJoin(stuck, ", ")));
  }

  bool IsShared(TransferModel model) const {
    return model == TransferModel::kPorts && ports_.size() > 0;
  }

  // Only ports care which op ends first.
  bool has_order() const { return ports_.size() > 0; }
  void Push(const Running& running) {
    running_.push_back(running);
    if (has_order()) std::push_heap(running_.begin(), running_.end());
  }
  Running Pop() {
    if (has_order()) std::pop_heap(running_.begin(), running_.end());
    const Running running = running_.back();
    running_.pop_back();
    return running;
  }

  const OpTable& ops_;
  const TransferPorts ports_;
  std::optional<SharedPorts> shared_;  // nothing: transfers take turns
  const MessagePlaces& places_;
  MessagePlaces taken_by_;     // by message: the one that takes its place
  std::vector<OpIndex> next_;  // by rank
  std::vector<Running> running_;
  std::vector<bool> ended_;  // by op
  // By message: it is known when it passes. Empty where that is known as soon as its op ends.
  std::vector<bool> is_timed_;
  WaitingRanks waiting_;           // for ops, and for messages, which are numbered after them
  std::vector<double> port_free_;  // since when, by port
  PipelineTimeline run_;
};

// The time from begin to end of all, and of the rank where it is longest.
void Measure(const OpTable& ops, PipelineTimeline& run) {
  TimeSpan all = run.ops.front();
  for (RankIndex rank = 0; rank < ops.profile().ranks(); ++rank) {
    if (ops.first(rank) == ops.first(rank + 1)) continue;
    const TimeSpan span = {run.ops[ops.first(rank)].begin, run.ops[ops.first(rank + 1) - 1].end};
    run.span_seconds = std::max(run.span_seconds, span.end - span.begin);
    all = {std::min(all.begin, span.begin), std::max(all.end, span.end)};
  }
  run.seconds = all.end - all.begin;
}

}  // namespace

absl::StatusOr<PipelineTimeline> SimulatePipeline(const OpTable& ops, TransferModel model,
                                                  const MessagePlaces& places) {
  ASSIGN_OR_RETURN(PipelineTimeline run, model == TransferModel::kBlocking
                                             ? SimulateBlocking(ops)
                                             : Runner(ops, model, places).Run());
  Measure(ops, run);
  return run;
}

double BubbleRatio(const OpTable& ops, const PipelineTimeline& run) {
  if (run.seconds == 0) return 0;
  double work = 0;
  for (OpIndex step = 0; step < ops.size(); step = ops.EndOf(step)) {
    work += run.ops[step].end - run.ops[step].begin;
  }
  return 1 - work / (static_cast<double>(ops.profile().ranks()) * run.seconds);
}

}  // namespace crossmesh
