#include "planner/pipeline/planning/buffer_proof.h"

#include "planner/pipeline/planning/transfer_buffers.h"

#include <cstddef>
#include <string>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

namespace crossmesh {
namespace {

// What waits for what: ops by number, then messages.
class WaitGraph {
 public:
  explicit WaitGraph(size_t nodes) : waits_for_(nodes), waited_by_(nodes) {}

  void Add(size_t first, size_t then) {
    waited_by_[first].push_back(then);
    waits_for_[then]++;
  }
  // Takes away what can be done, until nothing can. Returns how many are left.
  size_t Run() {
    std::vector<size_t> free;
    for (size_t node = 0; node < waits_for_.size(); ++node) {
      if (waits_for_[node] == 0) free.push_back(node);
    }
    size_t left = waits_for_.size();
    while (!free.empty()) {
      const size_t done = free.back();
      free.pop_back();
      --left;
      for (const size_t node : waited_by_[done]) {
        if (--waits_for_[node] == 0) free.push_back(node);
      }
    }
    return left;
  }
  bool waits(size_t node) const { return waits_for_[node] > 0; }

 private:
  std::vector<int32_t> waits_for_;
  std::vector<std::vector<size_t>> waited_by_;
};

}  // namespace

absl::Status ProveBuffers(const OpTable& ops, const std::vector<int64_t>& samples,
                          const std::vector<EdgePlan>& plans, const std::vector<int32_t>& buffers) {
  WaitGraph graph(static_cast<size_t>(ops.size()) + ops.messages());
  // Fused ops are the same node.
  for (RankIndex rank = 0; rank < ops.profile().ranks(); ++rank) {
    for (OpIndex step = ops.first(rank); ops.EndOf(step) < ops.first(rank + 1);
         step = ops.EndOf(step)) {
      graph.Add(step, ops.EndOf(step));
    }
  }
  for (size_t i = 0; i < plans.size(); ++i) {
    const TransferIndex transfer = plans[i].transfer;
    const std::vector<MicrobatchIndex> messages = MessagesOf(ops, plans[i], samples);
    const auto message = [&](size_t k) {
      return static_cast<size_t>(ops.size()) + ops.MessageOf(transfer, messages[k]);
    };
    const auto producer = [&](size_t k) {
      return ops.StepOf(ops.ProducerOf(transfer, messages[k]));
    };
    const auto consumer = [&](size_t k) {
      return ops.StepOf(ops.ConsumerOf(transfer, messages[k]));
    };
    for (size_t k = 0; k < messages.size(); ++k) {
      graph.Add(producer(k), message(k));
      graph.Add(message(k), consumer(k));
      if (k < static_cast<size_t>(buffers[i])) continue;
      // A producer writes into the buffer of the message before, and a receiver gets into it:
      // neither may begin while that one is still there.
      const size_t before = k - buffers[i];
      graph.Add(message(before), producer(k));
      graph.Add(consumer(before), message(k));
    }
  }
  // Everything could be done in some order; what is left waits in a circle.
  if (graph.Run() == 0) return absl::OkStatus();
  std::vector<std::string> stuck;
  for (RankIndex rank = 0; rank < ops.profile().ranks(); ++rank) {
    OpIndex op = ops.first(rank);
    while (op < ops.first(rank + 1) && !graph.waits(op)) ++op;
    if (op < ops.first(rank + 1))
      stuck.push_back(absl::StrCat("rank ", rank, " at ", ops.NameOfStep(ops.StepOf(op))));
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("expected memory for more messages, found ranks that would wait for each other "
                   "for ever: ",
                   absl::StrJoin(stuck, ", ")));
}

}  // namespace crossmesh
