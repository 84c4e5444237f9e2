#include "planner/pipeline/timeline.h"

#include "common/base/status_macros.h"
#include "planner/pipeline/blocking_timeline.h"
#include "planner/pipeline/event_times.h"
#include "planner/pipeline/order_proof.h"
#include "planner/pipeline/shared_ports.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

namespace crossmesh {
namespace {

constexpr double kNever = EventTimes::kNever;

class Runner {
 public:
  Runner(const OpTable& ops, TransferModel model, const MessagePlaces& places)
      : ops_(ops),
        ports_(ops.profile(), model),
        places_(places),
        taken_by_(places.size(), OpTable::kNone),
        // Transfers take turns in the order in which the ops began of which they are the outputs.
        running_(ops.profile().ranks(), model == TransferModel::kPorts
                                            ? EventTimes::Ties::kByNumber
                                            : EventTimes::Ties::kByPlace),
        port_free_(ports_.size(), 0) {
    run_.ops.resize(ops.size());
    run_.messages.resize(ops.messages());
    for (TransferIndex transfer = 0; transfer < ops.transfers(); ++transfer) {
      AddWay(transfer, ops.EdgeOf(transfer));
    }
    for (MessageIndex message = 0; message < std::ssize(places); ++message) {
      if (places[message] != OpTable::kNone) taken_by_[places[message]] = message;
    }
    for (RankIndex rank = 0; rank < ops.profile().ranks(); ++rank) {
      ranks_.push_back({.next = ops.first(rank), .end = ops.first(rank + 1)});
    }
    if (model == TransferModel::kPorts && ports_.size() > 0) shared_.emplace(ports_);
  }

  absl::StatusOr<PipelineTimeline> Run() && {
    for (RankIndex rank = 0; rank < std::ssize(ranks_); ++rank) BeginNext(rank);
    ports_.size() > 0 ? RunInOrder() : RunInAnyOrder();
    if (std::ranges::all_of(ranks_, [](const Rank& rank) { return rank.next == rank.end; })) {
      return std::move(run_);
    }
    // Where messages have places of their own, ranks are stuck only when an op waits for itself,
    // and the proof names the circle.
    RETURN_IF_ERROR(ProveOrder(ops_));
    return StuckForPlaces();
  }

 private:
  struct Rank {
    OpIndex next = 0;  // the step that it computes, or begins next
    OpIndex end = 0;
    MessageIndex waits_for = OpTable::kNone;  // of which it is not known yet when it has passed
  };
  struct Way {
    RankIndex from = 0, to = 0;
    bool passes() const { return from != to; }
  };

  void RunInOrder() {
    for (;;) {
      const double arrival = shared_ ? shared_->next_end() : kNever;
      if (running_.next() == kNever && arrival == kNever) return;
      if (running_.next() < arrival) {
        Finish(running_.first());
      } else {
        const auto [transfer, microbatch, passing] = shared_->TakeNext();
        Pass(transfer, microbatch, passing);
      }
    }
  }

  // Only ports care which op ends first.
  void RunInAnyOrder() {
    while (!unordered_.empty()) {
      const RankIndex rank = unordered_.back();
      unordered_.pop_back();
      Finish(rank);
    }
  }

  void AddWay(TransferIndex transfer, const EdgeProfile& edge) {
    Way way = {ops_.profile().stages[edge.from].rank, ops_.profile().stages[edge.to].rank};
    if (!OpTable::IsForward(transfer)) std::swap(way.from, way.to);
    ways_.push_back(way);
    if (!way.passes()) return;
    const auto first = run_.messages.begin() + ops_.MessageOf(transfer, 0);
    std::fill_n(first, ops_.schedule().microbatches, TimeSpan{.begin = kNever, .end = kNever});
  }

  void BeginNext(RankIndex number) {
    const OpIndex step = ranks_[number].next;
    const double begin = FindBegin(number);
    if (begin == kNever) {
      if (running_.of(number) < kNever) running_.Set(number, kNever);
      return;
    }
    const TimeSpan span = {begin, begin + ops_.SecondsOfStep(step)};
    for (OpIndex index = step; index < ops_.EndOf(step); ++index) run_.ops[index] = span;
    if (ports_.size() == 0) return unordered_.push_back(number);
    running_.Set(number, span.end, span.begin);
  }

  // When the next step of a rank can begin. Never: there is none, or the rank waits.
  double FindBegin(RankIndex number) {
    Rank& rank = ranks_[number];
    const OpIndex step = rank.next;
    if (step == rank.end) return kNever;
    // An input of the same rank is there once the op before this one has ended.
    double begin = step == ops_.first(number) ? 0 : run_.ops[step - 1].end;
    for (OpIndex index = step; index < ops_.EndOf(step); ++index) {
      if (!ops_.keeps_local_order() && !HasLocalInputs(ops_.op(index), step)) return kNever;
      rank.waits_for = FindAwaited(ops_.op(index), begin);
      if (rank.waits_for != OpTable::kNone) return kNever;
    }
    return begin;
  }

  // Whether what it needs of its own rank stands before its step; else it is stuck.
  bool HasLocalInputs(const Op& op, OpIndex step) const {
    if (ops_.LocalInput(op) >= step) return false;
    return std::ranges::all_of(ops_.TransfersInto(op), [&](TransferIndex transfer) {
      return ways_[transfer].passes() || ops_.ProducerOf(transfer, op.microbatch) < step;
    });
  }

  // A message that comes in, or has a place that the op's output takes, and of which it is not
  // known yet when it will have passed; if there is none, `at` is not before the last has.
  MessageIndex FindAwaited(const Op& op, double& at) const {
    for (const TransferIndex transfer : ops_.TransfersInto(op)) {
      const MessageIndex message = ops_.MessageOf(transfer, op.microbatch);
      const double end = run_.messages[message].end;
      if (end == kNever) return message;
      at = std::max(at, end);
    }
    if (places_.empty()) return OpTable::kNone;
    for (const TransferIndex transfer : ops_.TransfersOutOf(op)) {
      const MessageIndex before = places_[ops_.MessageOf(transfer, op.microbatch)];
      if (before == OpTable::kNone) continue;
      const double end = run_.messages[before].end;
      if (end == kNever) return before;
      at = std::max(at, end);
    }
    return OpTable::kNone;
  }

  void Finish(RankIndex number) {
    Rank& rank = ranks_[number];
    const OpIndex step = rank.next;
    const double now = run_.ops[step].end;
    rank.next = ops_.EndOf(step);
    for (OpIndex index = step; index < rank.next; ++index) {
      const Op& op = ops_.op(index);
      for (const TransferIndex transfer : ops_.TransfersOutOf(op)) {
        if (ways_[transfer].passes()) Send(transfer, op.microbatch, now);
      }
      if (!places_.empty()) GiveUpPlaces(op);
    }
    BeginNext(number);
  }

  bool HasEnded(OpIndex op, RankIndex rank) const { return op < ranks_[rank].next; }

  void Send(TransferIndex transfer, MicrobatchIndex m, double begin) {
    if (const MessageIndex before = PlaceOf(ops_.MessageOf(transfer, m));
        before != OpTable::kNone) {
      const OpIndex consumer = ops_.ConsumerOf(transfer, before - ops_.MessageOf(transfer, 0));
      if (!HasEnded(consumer, ways_[transfer].to)) return;  // sent when that one ends
      begin = std::max(begin, run_.ops[consumer].end);
    }
    const auto& ports = ports_.Of(transfer);
    const double seconds = ops_.SecondsOf(transfer, m);
    if (shared_ && !ports.empty()) return shared_->Send(transfer, m, seconds, begin);
    for (const PortIndex port : ports) begin = std::max(begin, port_free_[port]);
    const double end = begin + seconds;
    for (const PortIndex port : ports) port_free_[port] = end;
    Pass(transfer, m, {begin, end});
  }

  // The rank that waits for the message, or for its place, knows when it is there.
  void Pass(TransferIndex transfer, MicrobatchIndex m, const TimeSpan& passing) {
    const MessageIndex message = ops_.MessageOf(transfer, m);
    run_.messages[message] = passing;
    for (const RankIndex number : {ways_[transfer].to, ways_[transfer].from}) {
      if (ranks_[number].waits_for == message) BeginNext(number);
    }
  }

  // The messages that an op has used make place for others, which may be there already.
  void GiveUpPlaces(const Op& op) {
    for (const TransferIndex transfer : ops_.TransfersInto(op)) {
      const MessageIndex next = taken_by_[ops_.MessageOf(transfer, op.microbatch)];
      if (next == OpTable::kNone) continue;
      const MicrobatchIndex m = next - ops_.MessageOf(transfer, 0);
      const OpIndex producer = ops_.ProducerOf(transfer, m);
      if (HasEnded(producer, ways_[transfer].from)) Send(transfer, m, run_.ops[producer].end);
    }
  }

  // The message of the same transfer whose place it takes.
  MessageIndex PlaceOf(MessageIndex message) const {
    return places_.empty() ? OpTable::kNone : places_[message];
  }

  absl::Status StuckForPlaces() const {
    std::vector<std::string> stuck;
    for (RankIndex rank = 0; rank < std::ssize(ranks_); ++rank) {
      if (ranks_[rank].next == ranks_[rank].end) continue;
      stuck.push_back(absl::StrCat("rank ", rank, " at ", ops_.NameOfStep(ranks_[rank].next)));
    }
    return absl::ResourceExhaustedError(absl::StrCat(
        "expected memory for more messages, found ranks that would wait for each other "
        "for ever: ",
        absl::StrJoin(stuck, ", ")));
  }

  const OpTable& ops_;
  const TransferPorts ports_;
  std::optional<SharedPorts> shared_;  // nothing: transfers take turns
  std::vector<Way> ways_;              // by transfer
  const MessagePlaces& places_;
  MessagePlaces taken_by_;  // by message: the one that takes its place
  std::vector<Rank> ranks_;
  EventTimes running_;                // ends of the ops that ranks compute
  std::vector<RankIndex> unordered_;  // or the ranks, where the order does not matter
  std::vector<double> port_free_;     // since when, by port
  PipelineTimeline run_;              // messages that are still to pass, never
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
