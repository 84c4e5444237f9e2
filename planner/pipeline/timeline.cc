#include "planner/pipeline/timeline.h"

#include "common/base/status_macros.h"
#include "planner/pipeline/blocking_timeline.h"
#include "planner/pipeline/order_proof.h"
#include "planner/pipeline/waiting_ranks.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace crossmesh {
namespace {

// An op that has begun. Ordered for a heap that gives the one that ends first.
struct Running {
  double end = 0;
  double begin = 0;
  RankIndex rank = 0;

  friend bool operator<(const Running& a, const Running& b) {
    return std::tuple(a.end, a.begin, a.rank) > std::tuple(b.end, b.begin, b.rank);
  }
};

class Runner {
 public:
  Runner(const OpTable& ops, TransferModel model)
      : ops_(ops),
        ports_(ops.profile(), model),
        waiting_(ops.size(), ops.profile().ranks()),
        ended_(ops.size(), false),
        port_free_(ports_.size(), 0) {
    run_.ops.resize(ops.size());
    run_.messages.resize(ops.messages());
    for (RankIndex rank = 0; rank < ops.profile().ranks(); ++rank) next_.push_back(ops.first(rank));
  }

  absl::StatusOr<PipelineTimeline> Run() && {
    for (RankIndex rank = 0; rank < std::ssize(next_); ++rank) BeginNext(rank);
    int32_t ended = 0;
    for (; !running_.empty(); ++ended) Finish(Pop());
    // Ranks are stuck only when an op waits for itself, and the proof names the circle.
    if (ended != ops_.size()) return ProveOrder(ops_);
    return std::move(run_);
  }

 private:
  void BeginNext(RankIndex rank) {
    const OpIndex next = next_[rank];
    if (next == ops_.first(rank + 1)) return;
    const Op& op = ops_.op(next);
    const OpIndex waited = ops_.FindWaited(op, [this](OpIndex other) { return ended_[other]; });
    if (waited != OpTable::kNone) return waiting_.Add(rank, waited);
    double begin = next == ops_.first(rank) ? 0 : run_.ops[next - 1].end;
    for (const TransferIndex transfer : ops_.TransfersInto(op)) {
      begin = std::max(begin, run_.messages[ops_.MessageOf(transfer, op.microbatch)].end);
    }
    // An input of the same rank is there once the op before this one has ended.
    run_.ops[next] = {begin, begin + ops_.profile().SecondsOf(op)};
    Push({run_.ops[next].end, begin, rank});
  }

  void Finish(const Running& running) {
    const OpIndex index = next_[running.rank]++;
    const Op& op = ops_.op(index);
    // Sent before other ops begin: those that wait for this output need to know when it arrives.
    ended_[index] = true;
    for (const TransferIndex transfer : ops_.TransfersOutOf(op)) Send(transfer, op, running.end);
    waiting_.Release(index, [this](RankIndex rank) { BeginNext(rank); });
    BeginNext(running.rank);
  }

  void Send(TransferIndex transfer, const Op& op, double begin) {
    if (!ops_.Passes(transfer)) return;
    for (const PortIndex port : ports_.Of(transfer)) begin = std::max(begin, port_free_[port]);
    const double end = begin + ops_.SecondsOf(transfer, op.microbatch);
    for (const PortIndex port : ports_.Of(transfer)) port_free_[port] = end;
    run_.messages[ops_.MessageOf(transfer, op.microbatch)] = {begin, end};
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
  WaitingRanks waiting_;
  std::vector<OpIndex> next_;  // by rank
  std::vector<Running> running_;
  std::vector<bool> ended_;        // by op
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

absl::StatusOr<PipelineTimeline> SimulatePipeline(const OpTable& ops, TransferModel model) {
  ASSIGN_OR_RETURN(PipelineTimeline run, model == TransferModel::kBlocking
                                             ? SimulateBlocking(ops)
                                             : Runner(ops, model).Run());
  Measure(ops, run);
  return run;
}

double BubbleRatio(const OpTable& ops, const PipelineTimeline& run) {
  double work = 0;
  for (const TimeSpan& op : run.ops) work += op.end - op.begin;
  return 1 - work / (static_cast<double>(ops.profile().ranks()) * run.seconds);
}

}  // namespace crossmesh
