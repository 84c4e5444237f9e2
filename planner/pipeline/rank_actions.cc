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
        const OpIndex step = next[rank];
        if (step == ops_.first(rank + 1) || !IsReady(step)) continue;
        Add(rank, step);
        next[rank] = ops_.EndOf(step);
        left -= next[rank] - step;
      }
    }
    return std::move(actions_);
  }

 private:
  bool IsReady(OpIndex step) const {
    const auto ran = [this](OpIndex other) { return ran_[other]; };
    return ops_.FindWaitedByStep(step, ran) == OpTable::kNone;
  }

  void Add(RankIndex rank, OpIndex step) {
    const OpIndex end = ops_.EndOf(step);
    if (placement_ == ReceivePlacement::kBeforeUse) {
      for (OpIndex index = step; index < end; ++index) ReceiveInputs(rank, ops_.op(index));
    }
    actions_[rank].push_back({.kind = Action::Kind::kCompute, .op = step});
    for (OpIndex index = step; index < end; ++index) {
      ran_[index] = true;
      SendOutputs(rank, index);
    }
  }

  void ReceiveInputs(RankIndex rank, const Op& op) {
    for (const TransferIndex transfer : ops_.TransfersInto(op)) {
      if (!ops_.Passes(transfer)) continue;
      Receive(rank, ops_.ProducerOf(transfer, op.microbatch), transfer);
    }
  }

  void SendOutputs(RankIndex rank, OpIndex index) {
    const Op& op = ops_.op(index);
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
  const Op op = Unfused(ops.op(action.op));
  switch (action.kind) {
    case Action::Kind::kCompute:
      return absl::StrCat("compute ", ops.NameOfStep(action.op));
    case Action::Kind::kSend:
      return absl::StrCat("send ", ToString(op), " to rank ",
                          ops.rank_of(ops.ConsumerOf(action.transfer, op.microbatch)));
    case Action::Kind::kReceive:
      return absl::StrCat("receive ", ToString(op), " from rank ", ops.rank_of(action.op));
  }
  return "";
}

}  // namespace crossmesh
