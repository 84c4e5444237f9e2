#pragma once

#include "planner/pipeline/profile.h"
#include "planner/pipeline/schedule.h"

#include <cstdint>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {

using OpIndex = int32_t;

// An edge in one direction: activations forward or gradients backward.
using ChannelIndex = int32_t;  // 2 * edge, and 1 more for backward
// What passes through a channel for one microbatch.
using TransferIndex = int32_t;  // channel * microbatches + microbatch

// The ops of a schedule, numbered in the order of the ranks and of their rows, and what each one
// waits for. Refers to schedule and profile, which must outlive it. Immutable.
class OpTable {
 public:
  static constexpr OpIndex kNone = -1;
  static constexpr int64_t kOpsMax = int64_t{1} << 28;

  // InvalidArgument, naming op and rank, unless each stage and microbatch has one forward op, and
  // either one backward op or one of each gradient, all on the stage's rank; and what Validate
  // finds. ResourceExhausted with more than kOpsMax ops. Cost: linear.
  static absl::StatusOr<OpTable> Create(const Schedule& schedule, const PipelineProfile& profile);

  const Schedule& schedule() const { return *schedule_; }
  const PipelineProfile& profile() const { return *profile_; }

  int32_t size() const { return static_cast<int32_t>(ops_.size()); }
  const Op& op(OpIndex index) const { return ops_[index]; }
  RankIndex rank_of(OpIndex index) const { return profile_->stages[ops_[index].stage].rank; }
  // The ops of a rank are [first(rank), first(rank + 1)).
  OpIndex first(RankIndex rank) const { return first_[rank]; }

  OpIndex Forward(StageIndex stage, MicrobatchIndex m) const { return At(kForwardSlot, stage, m); }
  // That which gives the gradient of the input.
  OpIndex Backward(StageIndex stage, MicrobatchIndex m) const {
    return At(kBackwardSlot, stage, m);
  }

  // Whether activations pass through it, not gradients.
  static bool IsForward(ChannelIndex channel) { return channel % 2 == 0; }
  int32_t channels() const { return 2 * static_cast<int32_t>(profile_->edges.size()); }
  int32_t transfers() const { return channels() * schedule_->microbatches; }
  TransferIndex TransferOf(ChannelIndex channel, MicrobatchIndex m) const {
    return channel * schedule_->microbatches + m;
  }
  ChannelIndex ChannelOf(TransferIndex transfer) const {
    return transfer / schedule_->microbatches;
  }
  const EdgeProfile& EdgeOf(ChannelIndex channel) const { return profile_->edges[channel / 2]; }
  bool Passes(ChannelIndex channel) const { return profile_->passes(EdgeOf(channel)); }
  double SecondsOf(ChannelIndex channel, MicrobatchIndex m) const {
    const EdgeProfile& edge = EdgeOf(channel);
    const double seconds = IsForward(channel) ? edge.forward_seconds : edge.backward_seconds;
    return seconds * profile_->ScaleOf(m);
  }
  // The channels through which an op gets its inputs, and those through which it gives its output.
  const std::vector<ChannelIndex>& ChannelsInto(const Op& op) const;
  const std::vector<ChannelIndex>& ChannelsOutOf(const Op& op) const;

  // The op at the beginning, or the end, of a transfer.
  OpIndex ProducerOf(ChannelIndex channel, MicrobatchIndex m) const {
    const EdgeProfile& edge = EdgeOf(channel);
    return IsForward(channel) ? Forward(edge.from, m) : Backward(edge.to, m);
  }
  OpIndex ConsumerOf(ChannelIndex channel, MicrobatchIndex m) const {
    const EdgeProfile& edge = EdgeOf(channel);
    return IsForward(channel) ? Forward(edge.to, m) : Backward(edge.from, m);
  }
  // The op of the same stage that an op waits for, or kNone for a forward op.
  OpIndex LocalInput(const Op& op) const;
  // One of the ops that an op waits for and that `ended` does not hold for, or kNone.
  template <typename Ended>
  OpIndex FindWaited(const Op& op, Ended ended) const {
    const OpIndex local = LocalInput(op);
    if (local != kNone && !ended(local)) return local;
    for (const ChannelIndex channel : ChannelsInto(op)) {
      const OpIndex producer = ProducerOf(channel, op.microbatch);
      if (!ended(producer)) return producer;
    }
    return kNone;
  }

 private:
  enum Slot : uint8_t { kForwardSlot, kBackwardSlot, kWeightSlot, kSlots };

  OpTable(const Schedule& schedule, const PipelineProfile& profile);
  absl::Status Enter(RankIndex rank, const Op& op);
  absl::Status CheckComplete() const;

  static Slot SlotOf(OpKind kind);
  size_t PlaceOf(Slot slot, StageIndex stage, MicrobatchIndex m) const {
    return (static_cast<size_t>(stage) * kSlots + slot) * schedule_->microbatches + m;
  }
  OpIndex At(Slot slot, StageIndex stage, MicrobatchIndex m) const {
    return index_[PlaceOf(slot, stage, m)];
  }

  const Schedule* schedule_;
  const PipelineProfile* profile_;
  std::vector<Op> ops_;
  std::vector<OpIndex> first_;
  std::vector<OpIndex> index_;  // by stage, slot and microbatch
  // By stage: the channels of edges that come to it, or leave it, in each direction.
  std::vector<std::vector<ChannelIndex>> forward_in_, forward_out_, backward_in_, backward_out_;
};

}  // namespace crossmesh
