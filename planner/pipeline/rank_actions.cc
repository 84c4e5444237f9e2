#include "planner/pipeline/rank_actions.h"

#include "common/base/status_macros.h"
#include "planner/pipeline/order_proof.h"

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

class ActionsMaker {
 public:
  ActionsMaker(const OpTable& ops, ReceivePlacement placement)
      : ops_(ops),
        placement_(placement),
        actions_(ops.profile().ranks()),
        ran_(ops.size(), false) {}

  // Ranks take turns; the order of turns only matters for receives that stand at sends.
  RankActions Make() && {
    std::vector<OpIndex> next;
    for (RankIndex rank = 0; rank < std::ssize(actions_); ++rank) next.push_back(ops_.first(rank));
    for (int32_t left = ops_.size(); left > 0;) {
      for (RankIndex rank = 0; rank < std::ssize(actions_); ++rank) {
        if (next[rank] == ops_.first(rank + 1) || !IsReady(next[rank])) continue;
        Add(rank, next[rank]++);
        --left;
      }
    }
    return std::move(actions_);
  }

 private:
  bool IsReady(OpIndex op) const {
    const auto ran = [this](OpIndex other) { return ran_[other]; };
    return ops_.FindWaited(ops_.op(op), ran) == OpTable::kNone;
  }

  void Add(RankIndex rank, OpIndex index) {
    const Op& op = ops_.op(index);
    if (placement_ == ReceivePlacement::kBeforeUse) {
      for (const TransferIndex transfer : ops_.TransfersInto(op)) {
        if (!ops_.Passes(transfer)) continue;
        Receive(rank, ops_.ProducerOf(transfer, op.microbatch), transfer);
      }
    }
    actions_[rank].push_back({.kind = Action::Kind::kCompute, .op = index});
    ran_[index] = true;
    for (const TransferIndex transfer : ops_.TransfersOutOf(op)) {
      if (!ops_.Passes(transfer)) continue;
      actions_[rank].push_back({Action::Kind::kSend, index, transfer});
      if (placement_ == ReceivePlacement::kBeforeUse) continue;
      Receive(ops_.rank_of(ops_.ConsumerOf(transfer, op.microbatch)), index, transfer);
    }
  }

  void Receive(RankIndex rank, OpIndex producer, TransferIndex transfer) {
    actions_[rank].push_back({Action::Kind::kReceive, producer, transfer});
  }

  const OpTable& ops_;
  const ReceivePlacement placement_;
  RankActions actions_;
  std::vector<bool> ran_;  // by op
};

}  // namespace

absl::StatusOr<RankActions> MakeRankActions(const OpTable& ops, ReceivePlacement placement) {
  RETURN_IF_ERROR(ProveOrder(ops));
  return ActionsMaker(ops, placement).Make();
}

std::string ToString(const Action& action, const OpTable& ops) {
  const Op& op = ops.op(action.op);
  switch (action.kind) {
    case Action::Kind::kCompute:
      return absl::StrCat("compute ", ToString(op));
    case Action::Kind::kSend:
      return absl::StrCat("send ", ToString(op), " to rank ",
                          ops.rank_of(ops.ConsumerOf(action.transfer, op.microbatch)));
    case Action::Kind::kReceive:
      return absl::StrCat("receive ", ToString(op), " from rank ", ops.rank_of(action.op));
  }
  return "";
}

}  // namespace crossmesh
