#include "planner/pipeline/queues.h"

#include <algorithm>
#include <deque>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

namespace crossmesh {
namespace {

// The order of messages from one rank to another; under kTransfer, of one transfer.
struct LineKey {
  RankIndex from = 0;
  RankIndex to = 0;
  TransferIndex transfer = 0;

  friend auto operator<=>(const LineKey&, const LineKey&) = default;
};

LineKey LineOf(const OpTable& ops, const Action& action, QueueScope scope) {
  const MicrobatchIndex m = ops.op(action.op).microbatch;
  return {.from = ops.rank_of(action.op),
          .to = ops.rank_of(ops.ConsumerOf(action.transfer, m)),
          .transfer = scope == QueueScope::kTransfer ? action.transfer : 0};
}

MessageIndex MessageOf(const OpTable& ops, const Action& action) {
  return ops.MessageOf(action.transfer, ops.op(action.op).microbatch);
}

struct Queue {
  std::vector<Action> actions;
  size_t next = 0;
  double free_at = 0;  // when the action before the next one ended

  bool done() const { return next == actions.size(); }
  const Action& head() const { return actions[next]; }
  void Advance(double end) {
    free_at = end;
    ++next;
  }
};

// Messages that were sent ahead of their receiver.
struct Line {
  std::deque<MessageIndex> waiting;
  std::vector<double> freed_at;  // when each message received so far made room for another
};

class QueueSimulation {
 public:
  QueueSimulation(const OpTable& ops, const RankActions& actions, const QueueOptions& options)
      : ops_(ops),
        options_(options),
        op_end_(ops.size(), kNever),
        arrival_(ops.messages(), kNever),
        receiving_queue_(ops.messages(), nullptr) {
    for (RankIndex rank = 0; rank < std::ssize(actions); ++rank) {
      for (const Action& action : actions[rank]) {
        Queue& queue = queues_[KeyOf(rank, action)];
        queue.actions.push_back(action);
        if (action.kind == Action::Kind::kReceive) {
          // A pointer into the map stays valid as queues are added.
          receiving_queue_[MessageOf(ops_, action)] = &queue;
        }
      }
    }
  }

  absl::StatusOr<double> Run() {
    // Passes over all queues until one changes nothing: the order of queues decides no time, since
    // each action begins by what it waits for.
    for (bool is_moving = true; is_moving;) {
      is_moving = false;
      for (auto& [key, queue] : queues_) {
        while (!queue.done() && DoHead(queue)) is_moving = true;
      }
    }
    if (!std::ranges::all_of(queues_, [](const auto& entry) { return entry.second.done(); })) {
      return Stuck();
    }
    double seconds = 0;
    for (const double end : op_end_) seconds = std::max(seconds, end);
    return seconds;
  }

 private:
  static constexpr double kNever = -1;
  // Rank; what the queue is of: ops, or messages with a peer or of a transfer.
  using Key = std::tuple<RankIndex, bool, int32_t>;

  Key KeyOf(RankIndex rank, const Action& action) const {
    if (action.kind == Action::Kind::kCompute || options_.scope == QueueScope::kWholeRank) {
      return {rank, false, 0};
    }
    if (options_.scope == QueueScope::kRank) return {rank, true, 0};
    // A transfer has one queue at each end, so its number is enough.
    if (options_.scope == QueueScope::kTransfer) return {rank, true, action.transfer};
    const LineKey line = LineOf(ops_, action, options_.scope);
    return {rank, true, line.from == rank ? line.to : line.from};
  }

  bool DoHead(Queue& queue) {
    switch (queue.head().kind) {
      case Action::Kind::kCompute:
        return ComputeHead(queue);
      case Action::Kind::kSend:
        return options_.waiting_max == 0 ? MeetReceiver(queue) : SendAhead(queue);
      case Action::Kind::kReceive:  // when none may wait, the sender does both ends
        return options_.waiting_max > 0 && TakeWaiting(queue);
    }
    return false;
  }

  bool ComputeHead(Queue& queue) {
    const OpIndex step = queue.head().op;
    double begin = queue.free_at;
    for (OpIndex index = step; index < ops_.EndOf(step); ++index) {
      const double there = InputsAt(ops_.op(index));
      if (there == kNever) return false;
      begin = std::max(begin, there);
    }
    const double end = begin + ops_.SecondsOfStep(step);
    for (OpIndex index = step; index < ops_.EndOf(step); ++index) op_end_[index] = end;
    queue.Advance(end);
    return true;
  }

  // When all inputs of an op are there, or kNever.
  double InputsAt(const Op& op) const {
    double at = 0;
    if (const OpIndex local = ops_.LocalInput(op); local != OpTable::kNone) {
      if (op_end_[local] == kNever) return kNever;
      at = op_end_[local];
    }
    for (const TransferIndex transfer : ops_.TransfersInto(op)) {
      const double there = ops_.Passes(transfer)
                               ? arrival_[ops_.MessageOf(transfer, op.microbatch)]
                               : op_end_[ops_.ProducerOf(transfer, op.microbatch)];
      if (there == kNever) return kNever;
      at = std::max(at, there);
    }
    return at;
  }

  bool MeetReceiver(Queue& queue) {
    const Action& send = queue.head();
    const MessageIndex message = MessageOf(ops_, send);
    Queue* const receiver = receiving_queue_[message];
    if (op_end_[send.op] == kNever || receiver == nullptr || receiver->done()) return false;
    const Action& receive = receiver->head();
    if (receive.kind != Action::Kind::kReceive || MessageOf(ops_, receive) != message) {
      return false;
    }
    const double begin = std::max({queue.free_at, receiver->free_at, op_end_[send.op]});
    arrival_[message] = begin + ops_.SecondsOf(send.transfer, ops_.op(send.op).microbatch);
    queue.Advance(arrival_[message]);
    receiver->Advance(arrival_[message]);
    return true;
  }

  bool SendAhead(Queue& queue) {
    const Action& send = queue.head();
    Line& line = lines_[LineOf(ops_, send, options_.scope)];
    if (op_end_[send.op] == kNever || std::ssize(line.waiting) == options_.waiting_max)
      return false;
    double begin = std::max(queue.free_at, op_end_[send.op]);
    // The line has room for this message since the one waiting_max before it was received.
    const auto sent = std::ssize(line.freed_at) + std::ssize(line.waiting);
    if (sent >= options_.waiting_max)
      begin = std::max(begin, line.freed_at[sent - options_.waiting_max]);
    arrival_of_sent_[MessageOf(ops_, send)] =
        begin + ops_.SecondsOf(send.transfer, ops_.op(send.op).microbatch);
    line.waiting.push_back(MessageOf(ops_, send));
    queue.Advance(begin + ops_.SecondsOf(send.transfer, ops_.op(send.op).microbatch));
    return true;
  }

  bool TakeWaiting(Queue& queue) {
    const Action& receive = queue.head();
    const MessageIndex message = MessageOf(ops_, receive);
    Line& line = lines_[LineOf(ops_, receive, options_.scope)];
    // Messages carry no name: only the oldest can be taken, and another one blocks the queue for
    // good.
    if (line.waiting.empty() || line.waiting.front() != message) return false;
    line.waiting.pop_front();
    arrival_[message] = std::max(queue.free_at, arrival_of_sent_[message]);
    line.freed_at.push_back(arrival_[message]);
    queue.Advance(arrival_[message]);
    return true;
  }

  absl::Status Stuck() const {
    std::vector<std::string> heads;
    for (const auto& [key, queue] : queues_) {
      if (queue.done()) continue;
      heads.push_back(absl::StrCat("rank ", std::get<0>(key), ": ", ToString(queue.head(), ops_)));
    }
    return absl::FailedPreconditionError(
        absl::StrCat("actions: expected to go on with ", options_.waiting_max,
                     " messages under way, found it stuck at ", absl::StrJoin(heads, "; ")));
  }

  const OpTable& ops_;
  const QueueOptions options_;
  std::map<Key, Queue> queues_;
  std::map<LineKey, Line> lines_;
  // Of messages that no receive has taken yet; arrival_ has the others.
  std::map<MessageIndex, double> arrival_of_sent_;
  std::vector<double> op_end_;           // by op
  std::vector<double> arrival_;          // by message
  std::vector<Queue*> receiving_queue_;  // by message
};

struct LineEnds {
  std::vector<Action> sent;
  std::vector<Action> received;
};

}  // namespace

absl::StatusOr<double> SimulateQueues(const OpTable& ops, const RankActions& actions,
                                      const QueueOptions& options) {
  return QueueSimulation(ops, actions, options).Run();
}

absl::Status ProveLines(const OpTable& ops, const RankActions& actions, QueueScope scope) {
  std::map<LineKey, LineEnds> lines;
  for (const std::vector<Action>& of_rank : actions) {
    for (const Action& action : of_rank) {
      if (action.kind == Action::Kind::kCompute) continue;
      LineEnds& ends = lines[LineOf(ops, action, scope)];
      (action.kind == Action::Kind::kSend ? ends.sent : ends.received).push_back(action);
    }
  }
  for (const auto& [key, ends] : lines) {
    const size_t count = std::max(ends.sent.size(), ends.received.size());
    for (size_t place = 0; place < count; ++place) {
      const auto op_at = [&](const std::vector<Action>& ended) {
        return place < ended.size() ? ToString(Unfused(ops.op(ended[place].op))) : "nothing";
      };
      if (place < ends.sent.size() && place < ends.received.size() &&
          MessageOf(ops, ends.sent[place]) == MessageOf(ops, ends.received[place])) {
        continue;
      }
      return absl::InvalidArgumentError(
          absl::StrCat("messages from rank ", key.from, " to rank ", key.to,
                       ": expected that both take them in one order, found ", op_at(ends.sent),
                       " sent and ", op_at(ends.received), " received in place ", place));
    }
  }
  return absl::OkStatus();
}

}  // namespace crossmesh
