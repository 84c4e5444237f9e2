#include "planner/layers/layer_timeline.h"

#include "common/base/check.h"
#include "planner/pipeline/event_times.h"
#include "planner/pipeline/shared_ports.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>

namespace crossmesh {
namespace {

constexpr double kNever = EventTimes::kNever;

struct MessageId {
  int32_t transfer = 0;
  int32_t index = 0;
};

class LayerRun {
 public:
  LayerRun(const LayerProgram& program, const TransferCosts& costs)
      : program_(program),
        costs_(costs),
        shared_(costs.ports),
        inputs_(program.ops.size()),
        outputs_(program.ops.size()),
        place_(program.ops.size()),
        ranks_(program.ranks.size()),
        running_(static_cast<int32_t>(program.ranks.size())) {
    run_.ops.resize(program.ops.size());
    run_.waits.resize(program.ops.size());
    run_.exposures.resize(program.transfers.size());
    for (int32_t op = 0; op < std::ssize(program.ops); ++op) {
      std::vector<int32_t>& ops = ranks_[program.ops[op].rank].ops;
      place_[op] = ops.size();
      ops.push_back(op);
    }
    for (int32_t t = 0; t < std::ssize(program.transfers); ++t) {
      const auto& messages = program.transfers[t].messages;
      run_.messages.emplace_back(messages.size(), TimeSpan{.begin = kNever, .end = kNever});
      run_.message_exposures.emplace_back(messages.size());
      for (int32_t m = 0; m < std::ssize(messages); ++m) {
        outputs_[messages[m].producer].push_back({t, m});
        inputs_[messages[m].consumer].push_back({t, m});
      }
    }
  }

  LayerTimeline Run() && {
    for (RankIndex rank = 0; rank < std::ssize(ranks_); ++rank) BeginNext(rank);
    while (running_.next() < kNever || shared_.next_end() < kNever) {
      if (running_.next() < shared_.next_end()) {
        Finish(running_.first());
      } else {
        const auto [transfer, index, passing] = shared_.TakeNext();
        Pass({transfer, index}, passing);
      }
    }
    for (const Rank& rank : ranks_) CHECK(rank.next == rank.ops.size()) << "a rank is stuck";
    Measure();
    return std::move(run_);
  }

 private:
  struct Rank {
    std::vector<int32_t> ops;
    size_t next = 0;
  };

  TimeSpan& At(const MessageId& message) { return run_.messages[message.transfer][message.index]; }
  const LayerProgram::Transfer& TransferOf(const MessageId& message) const {
    return program_.transfers[message.transfer];
  }

  bool HasEnded(int32_t op) const { return place_[op] < ranks_[program_.ops[op].rank].next; }

  // Once all that the next op waits for is known, and with it when that begins.
  void BeginNext(RankIndex number) {
    const Rank& rank = ranks_[number];
    if (running_.of(number) < kNever || rank.next == rank.ops.size()) return;
    const int32_t op = rank.ops[rank.next];
    const std::vector<MessageId> awaited = AwaitedBy(op);
    double begin = EndBefore(rank);
    for (const MessageId& message : awaited) begin = std::max(begin, At(message).end);
    if (begin == kNever) return;
    run_.ops[op] = {begin, begin + program_.ops[op].seconds};
    running_.Set(number, run_.ops[op].end);
    DealOut(op, awaited, EndBefore(rank));
  }

  double EndBefore(const Rank& rank) const {
    return rank.next == 0 ? 0 : run_.ops[rank.ops[rank.next - 1]].end;
  }

  // Inputs, and what is to leave before its outputs have room. That it was used as well is known of
  // the op's own rank, whose ops are in order; on another rank it is that rank's memory.
  std::vector<MessageId> AwaitedBy(int32_t op) const {
    std::vector<MessageId> awaited = inputs_[op];
    for (const MessageId& output : outputs_[op]) {
      const int32_t before = output.index - TransferOf(output).buffers;
      if (before >= 0) awaited.push_back({output.transfer, before});
    }
    return awaited;
  }

  void DealOut(int32_t op, std::vector<MessageId> awaited, double since) {
    std::ranges::sort(awaited, {}, [this](const MessageId& message) { return At(message).end; });
    for (const MessageId& message : awaited) {
      const TimeSpan& passing = At(message);
      if (passing.end <= since) continue;
      const double begin = std::clamp(passing.begin, since, passing.end);
      run_.waits[op].for_others += begin - since;
      run_.waits[op].for_transfers += passing.end - begin;
      // Of a giver and a receiver that both wait the one that waits longer: they wait to its end.
      double& exposed = run_.message_exposures[message.transfer][message.index].exposed;
      exposed = std::max(exposed, passing.end - begin);
      since = passing.end;
    }
  }

  void Finish(RankIndex number) {
    running_.Set(number, kNever);
    Rank& rank = ranks_[number];
    const int32_t op = rank.ops[rank.next++];
    const double now = run_.ops[op].end;
    for (const MessageId& output : outputs_[op]) SendIfFree(output, now);
    for (const MessageId& input : inputs_[op]) {
      const MessageId next = {input.transfer, input.index + TransferOf(input).buffers};
      const auto& messages = TransferOf(next).messages;
      if (next.index >= std::ssize(messages)) continue;
      if (HasEnded(messages[next.index].producer)) SendIfFree(next, now);
    }
    BeginNext(number);
  }

  void SendIfFree(const MessageId& message, double now) {
    const LayerProgram::Transfer& transfer = TransferOf(message);
    const int32_t before = message.index - transfer.buffers;
    if (before >= 0 && !HasEnded(transfer.messages[before].consumer)) return;
    const double seconds = costs_.seconds[message.transfer];
    if (costs_.ports.Of(message.transfer).empty()) return Pass(message, {now, now + seconds});
    shared_.Send(message.transfer, message.index, seconds, now);
  }

  void Pass(const MessageId& message, const TimeSpan& passing) {
    At(message) = passing;
    const LayerProgram::Transfer& transfer = TransferOf(message);
    for (const RankIndex rank : {program_.to(transfer), program_.from(transfer)}) BeginNext(rank);
  }

  void Measure() {
    for (const TimeSpan& op : run_.ops) run_.seconds = std::max(run_.seconds, op.end);
    for (size_t t = 0; t < run_.messages.size(); ++t) {
      LayerTimeline::Exposure& of = run_.exposures[t];
      for (size_t m = 0; m < run_.messages[t].size(); ++m) {
        const TimeSpan& passing = run_.messages[t][m];
        auto& [exposed, hidden] = run_.message_exposures[t][m];
        hidden = passing.end - passing.begin - exposed;
        of.exposed += exposed;
        of.hidden += hidden;
      }
    }
  }

  const LayerProgram& program_;
  const TransferCosts& costs_;
  SharedPorts shared_;
  std::vector<std::vector<MessageId>> inputs_, outputs_;  // by op
  std::vector<size_t> place_;                             // of an op among those of its rank
  std::vector<Rank> ranks_;
  EventTimes running_;  // ends of the ops that ranks compute
  LayerTimeline run_;
};

}  // namespace

LayerTimeline SimulateLayers(const LayerProgram& program, const TransferCosts& costs) {
  return LayerRun(program, costs).Run();
}

}  // namespace crossmesh
