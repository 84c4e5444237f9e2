#pragma once

#include "planner/pipeline/profile.h"
#include "planner/pipeline/schedule.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {

using OpIndex = int32_t;

// An edge in one direction: activations forward, or gradients backward.
using TransferIndex = int32_t;  // 2 * edge, and 1 more for backward
// What a transfer moves for one microbatch.
using MessageIndex = int32_t;  // transfer * microbatches + microbatch

// The ops of a schedule, numbered in the order of the ranks and of their rows, and what each one
// waits for. Refers to schedule and profile, which must outlive it. Immutable.
class OpTable {
 public:
  static constexpr OpIndex kNone = -1;
  static constexpr int64_t kOpsMax = int64_t{1} << 28;

  // InvalidArgument, naming op and rank, unless each stage and microbatch has one forward op, and
  // either one backward op or one of each gradient, all on the stage's rank, and each fused op is a
  // forward op before one that gives the gradient of the input; and what Validate finds.
  // ResourceExhausted with more than kOpsMax ops. Cost: linear.
  static absl::StatusOr<OpTable> Create(const Schedule& schedule, const PipelineProfile& profile);

  const Schedule& schedule() const { return *schedule_; }
  const PipelineProfile& profile() const { return *profile_; }

  int32_t size() const { return static_cast<int32_t>(ops_.size()); }
  const Op& op(OpIndex index) const { return ops_[index]; }
  RankIndex rank_of(OpIndex index) const { return profile_->stages[ops_[index].stage].rank; }
  // The ops of a rank are [first(rank), first(rank + 1)).
  OpIndex first(RankIndex rank) const { return first_[rank]; }

  // A rank computes step by step: an op, or two that are fused.
  // A step is known by its first op; its ops are [step, EndOf(step)).
  OpIndex EndOf(OpIndex step) const { return step + (ops_[step].is_fused ? 2 : 1); }
  // The step that an op is in.
  OpIndex StepOf(OpIndex index) const {
    return index > 0 && ops_[index - 1].is_fused ? index - 1 : index;
  }
  double SecondsOfStep(OpIndex step) const {
    const Op& op = ops_[step];
    return op.is_fused ? profile_->SecondsOfPair(op, ops_[step + 1]) : profile_->SecondsOf(op);
  }
  // "3F7", "3F7& 0B3".
  std::string NameOfStep(OpIndex step) const;

  OpIndex Forward(StageIndex stage, MicrobatchIndex m) const { return At(kForwardPass, stage, m); }
  // The op that computes the gradient of the input.
  OpIndex Backward(StageIndex stage, MicrobatchIndex m) const {
    return At(kBackwardPass, stage, m);
  }

  // Whether it moves activations, not gradients.
  static bool IsForward(TransferIndex transfer) { return transfer % 2 == 0; }
  int32_t transfers() const { return 2 * static_cast<int32_t>(profile_->edges.size()); }
  int32_t messages() const { return transfers() * schedule_->microbatches; }
  MessageIndex MessageOf(TransferIndex transfer, MicrobatchIndex m) const {
    return transfer * schedule_->microbatches + m;
  }
  const EdgeProfile& EdgeOf(TransferIndex transfer) const { return profile_->edges[transfer / 2]; }
  bool Passes(TransferIndex transfer) const { return profile_->passes(EdgeOf(transfer)); }
  double SecondsOf(TransferIndex transfer, MicrobatchIndex m) const {
    const EdgeProfile& edge = EdgeOf(transfer);
    const double seconds = IsForward(transfer) ? edge.forward_seconds : edge.backward_seconds;
    return seconds * profile_->ScaleOf(m);
  }
  // The transfers that bring an op its inputs, and those that take its output away.
  std::span<const TransferIndex> TransfersInto(const Op& op) const {
    return into_.Of(KindOf(PassOf(op.kind), op.stage));
  }
  std::span<const TransferIndex> TransfersOutOf(const Op& op) const {
    return out_of_.Of(KindOf(PassOf(op.kind), op.stage));
  }

  // The op whose output a message is, and the op that waits for it.
  OpIndex ProducerOf(TransferIndex transfer, MicrobatchIndex m) const {
    const EdgeProfile& edge = EdgeOf(transfer);
    return IsForward(transfer) ? Forward(edge.from, m) : Backward(edge.to, m);
  }
  OpIndex ConsumerOf(TransferIndex transfer, MicrobatchIndex m) const {
    const EdgeProfile& edge = EdgeOf(transfer);
    return IsForward(transfer) ? Forward(edge.to, m) : Backward(edge.from, m);
  }
  // Whether each op is known to stand after all those of its own rank that it waits for. Of tables
  // with fused ops nothing is known.
  bool keeps_local_order() const { return keeps_local_order_; }
  // The op of the same stage that an op waits for, or kNone for a forward op.
  OpIndex LocalInput(const Op& op) const {
    const Pass pass = PassOf(op.kind);
    if (pass == kForwardPass) return kNone;
    return At(pass == kBackwardPass ? kForwardPass : kBackwardPass, op.stage, op.microbatch);
  }
  // One of the ops that an op waits for and that `ended` does not hold for, or kNone.
  template <typename Ended>
  OpIndex FindWaited(const Op& op, Ended ended) const {
    const OpIndex local = LocalInput(op);
    if (local != kNone && !ended(local)) return local;
    for (const TransferIndex transfer : TransfersInto(op)) {
      const OpIndex producer = ProducerOf(transfer, op.microbatch);
      if (!ended(producer)) return producer;
    }
    return kNone;
  }
  // The same of all ops of a step.
  template <typename Ended>
  OpIndex FindWaitedByStep(OpIndex step, Ended ended) const {
    for (OpIndex index = step; index < EndOf(step); ++index) {
      if (const OpIndex waited = FindWaited(ops_[index], ended); waited != kNone) return waited;
    }
    return kNone;
  }

 private:
  enum Pass : uint8_t { kForwardPass, kBackwardPass, kWeightPass, kPasses };

  // Transfers of ops, which are the same for all microbatches. One list after the other, since runs
  // look into them for each op and they should stay in the nearest cache.
  class TransferLists {
   public:
    // `of_kind`: by stage and pass.
    explicit TransferLists(const std::vector<std::vector<TransferIndex>>& of_kind);
    std::span<const TransferIndex> Of(size_t kind) const {
      return std::span(all_).subspan(first_[kind], first_[kind + 1] - first_[kind]);
    }

   private:
    std::vector<TransferIndex> all_;
    std::vector<int32_t> first_;  // by kind, and the end
  };

  OpTable(const Schedule& schedule, const PipelineProfile& profile);
  static TransferLists ListTransfers(const PipelineProfile& profile, bool into);
  absl::Status Enter(RankIndex rank, const Op& op);
  absl::Status CheckFused(RankIndex rank) const;
  absl::Status CheckComplete() const;
  bool KeepsLocalOrder() const;

  // A backward op and a gradient of the input share a place: each stage and microbatch has one.
  static Pass PassOf(OpKind kind) {
    if (kind == OpKind::kForward) return kForwardPass;
    return GivesInputGradient(kind) ? kBackwardPass : kWeightPass;
  }
  static size_t KindOf(Pass pass, StageIndex stage) {
    return static_cast<size_t>(stage) * kPasses + pass;
  }
  size_t PlaceOf(Pass pass, StageIndex stage, MicrobatchIndex m) const {
    return KindOf(pass, stage) * schedule_->microbatches + m;
  }
  OpIndex At(Pass pass, StageIndex stage, MicrobatchIndex m) const {
    return index_[PlaceOf(pass, stage, m)];
  }

  const Schedule* schedule_;
  const PipelineProfile* profile_;
  std::vector<Op> ops_;
  std::vector<OpIndex> first_;
  std::vector<OpIndex> index_;  // by stage, pass and microbatch
  TransferLists into_, out_of_;
  bool keeps_local_order_ = false;
};

}  // namespace crossmesh
