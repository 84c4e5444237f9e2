#include "planner/pipeline/op_table.h"

#include "common/base/status_macros.h"

#include <algorithm>
#include <utility>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

int64_t OpsOf(const Schedule& schedule) {
  int64_t ops = 0;
  for (const std::vector<Op>& row : schedule.ranks) ops += std::ssize(row);
  return ops;
}

absl::Status CheckSize(const Schedule& schedule, const PipelineProfile& profile) {
  if (schedule.stages != std::ssize(profile.stages)) {
    return absl::InvalidArgumentError(absl::StrCat("schedule: expected ", profile.stages.size(),
                                                   " stages, found ", schedule.stages));
  }
  if (std::ssize(schedule.ranks) != profile.ranks()) {
    return absl::InvalidArgumentError(absl::StrCat("schedule: expected ", profile.ranks(),
                                                   " ranks, found ", schedule.ranks.size()));
  }
  if (schedule.microbatches < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("schedule: expected microbatches, found ", schedule.microbatches));
  }
  RETURN_IF_ERROR(CheckMicrobatches(profile, schedule.microbatches));
  // Three ops for each stage and two messages for each edge, which keeps every index within 32
  // bits.
  const auto wide = static_cast<int64_t>(3 * profile.stages.size() + 2 * profile.edges.size());
  if (wide * schedule.microbatches > OpTable::kOpsMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat("schedule: expected at most ", OpTable::kOpsMax,
                     " ops and messages, found up to ", wide * schedule.microbatches));
  }
  // Before anything is as large as the schedule says that it is.
  if (const int64_t ops = OpsOf(schedule); ops < schedule.microbatches) {
    return absl::InvalidArgumentError(absl::StrCat("schedule: expected ops of each of ",
                                                   schedule.microbatches, " microbatches, found ",
                                                   ops, " ops"));
  }
  return absl::OkStatus();
}

}  // namespace

OpTable::OpTable(const Schedule& schedule, const PipelineProfile& profile)
    : schedule_(&schedule),
      profile_(&profile),
      index_(profile.stages.size() * kPasses * static_cast<size_t>(schedule.microbatches), kNone),
      into_(ListTransfers(profile, /*into=*/true)),
      out_of_(ListTransfers(profile, /*into=*/false)) {
  ops_.reserve(OpsOf(schedule));
}

OpTable::TransferLists OpTable::ListTransfers(const PipelineProfile& profile, bool into) {
  std::vector<std::vector<TransferIndex>> of_kind(profile.stages.size() * kPasses);
  TransferIndex transfer = 0;
  for (const EdgeProfile& edge : profile.edges) {
    of_kind[KindOf(kForwardPass, into ? edge.to : edge.from)].push_back(transfer++);
    of_kind[KindOf(kBackwardPass, into ? edge.from : edge.to)].push_back(transfer++);
  }
  return TransferLists(of_kind);
}

OpTable::TransferLists::TransferLists(const std::vector<std::vector<TransferIndex>>& of_kind) {
  for (const std::vector<TransferIndex>& list : of_kind) {
    first_.push_back(static_cast<int32_t>(all_.size()));
    all_.insert(all_.end(), list.begin(), list.end());
  }
  first_.push_back(static_cast<int32_t>(all_.size()));
}

absl::StatusOr<OpTable> OpTable::Create(const Schedule& schedule, const PipelineProfile& profile) {
  RETURN_IF_ERROR(Validate(profile));
  RETURN_IF_ERROR(CheckSize(schedule, profile));
  OpTable table(schedule, profile);
  for (RankIndex rank = 0; rank < profile.ranks(); ++rank) {
    table.first_.push_back(table.size());
    for (const Op& op : schedule.ranks[rank]) RETURN_IF_ERROR(table.Enter(rank, op));
    RETURN_IF_ERROR(table.CheckFused(rank));
  }
  // The end of the last rank, where a next one would begin.
  table.first_.push_back(table.size());
  RETURN_IF_ERROR(table.CheckComplete());
  table.keeps_local_order_ = table.KeepsLocalOrder();
  return table;
}

absl::Status OpTable::Enter(RankIndex rank, const Op& op) {
  const auto error = [&](absl::string_view expected, absl::string_view found) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", rank, ", op ", ToString(op),
                                                   ": expected ", expected, ", found ", found));
  };
  if (op.stage < 0 || op.stage >= schedule_->stages || op.microbatch < 0 ||
      op.microbatch >= schedule_->microbatches) {
    return error(absl::StrCat("a stage below ", schedule_->stages, " and a microbatch below ",
                              schedule_->microbatches),
                 "another");
  }
  if (const RankIndex owner = profile_->stages[op.stage].rank; owner != rank) {
    return error("the stages of that rank", absl::StrCat("one of rank ", owner));
  }
  OpIndex& index = index_[PlaceOf(PassOf(op.kind), op.stage, op.microbatch)];
  if (index != kNone) return error("it once", absl::StrCat(ToString(ops_[index]), " before it"));
  index = size();
  ops_.push_back(op);
  return absl::OkStatus();
}

absl::Status OpTable::CheckFused(RankIndex rank) const {
  for (OpIndex index = first_[rank]; index < size(); ++index) {
    const Op& op = ops_[index];
    if (!op.is_fused) continue;
    const bool has_next = index + 1 < size();
    if (op.kind == OpKind::kForward && has_next && GivesInputGradient(ops_[index + 1].kind)) {
      continue;
    }
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", rank, ", op ", ToString(op),
                     ": expected a forward op, fused with the backward op right after it, found ",
                     has_next ? ToString(ops_[index + 1]) : "nothing", " after it"));
  }
  return absl::OkStatus();
}

absl::Status OpTable::CheckComplete() const {
  for (StageIndex stage = 0; stage < schedule_->stages; ++stage) {
    for (MicrobatchIndex m = 0; m < schedule_->microbatches; ++m) {
      const auto error = [&](absl::string_view expected, absl::string_view found) {
        return absl::InvalidArgumentError(absl::StrCat("stage ", stage, ", microbatch ", m,
                                                       ": expected ", expected, ", found ", found));
      };
      if (Forward(stage, m) == kNone) return error("a forward op", "none");
      if (Backward(stage, m) == kNone) return error("a backward op", "none");
      const bool has_weights = At(kWeightPass, stage, m) != kNone;
      const bool is_split = ops_[Backward(stage, m)].kind == OpKind::kInputGradient;
      if (is_split && !has_weights) return error("a gradient of the weights", "none");
      if (!is_split && has_weights) return error("one gradient of the weights", "two");
    }
  }
  return absl::OkStatus();
}

// By stage and microbatch, as the places of ops lie side by side: runs would look for them all
// over.
bool OpTable::KeepsLocalOrder() const {
  if (std::ranges::any_of(ops_, &Op::is_fused)) return false;
  for (StageIndex stage = 0; stage < schedule_->stages; ++stage) {
    for (MicrobatchIndex m = 0; m < schedule_->microbatches; ++m) {
      const OpIndex backward = Backward(stage, m), weights = At(kWeightPass, stage, m);
      if (backward < Forward(stage, m) || (weights != kNone && weights < backward)) return false;
    }
  }
  for (TransferIndex transfer = 0; transfer < transfers(); ++transfer) {
    if (Passes(transfer)) continue;
    for (MicrobatchIndex m = 0; m < schedule_->microbatches; ++m) {
      if (ConsumerOf(transfer, m) < ProducerOf(transfer, m)) return false;
    }
  }
  return true;
}

std::string OpTable::NameOfStep(OpIndex step) const {
  const Op& op = ops_[step];
  return op.is_fused ? absl::StrCat(ToString(op), " ", ToString(ops_[step + 1])) : ToString(op);
}

}  // namespace crossmesh
