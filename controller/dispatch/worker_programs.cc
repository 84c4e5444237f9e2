#include "controller/dispatch/worker_programs.h"

#include "common/base/status_macros.h"
#include "common/wire/worker_part_codec.h"
#include "controller/dispatch/plan_cutter.h"
#include "planner/pipeline/blocking_timeline.h"
#include "planner/pipeline/planning/microbatch_sizes.h"

#include <algorithm>
#include <string>
#include <utility>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

using Edge = PipelineDescription::Edge;

absl::Status NothingToCarryOut(const Edge& edge) {
  return absl::InvalidArgumentError(absl::StrCat(
      "edge from stage ", edge.from, " to ", edge.to,
      ": expected tensors, since it passes between ranks of a pipeline that runs; found none"));
}

class ProgramMaker {
 public:
  ProgramMaker(const PlannedPipeline& planned, const std::vector<std::vector<DeviceId>>& devices)
      : planned_(planned), cutter_(devices), programs_(devices.size()) {}

  absl::StatusOr<std::vector<PlannedProgram>> Make() && {
    RETURN_IF_ERROR(AddTransfers());
    RETURN_IF_ERROR(AddRanks());
    AddMicrobatches();
    return std::move(programs_);
  }

 private:
  absl::Status AddTransfers() {
    const std::vector<MicrobatchSize> sizes = SizesOf(planned_.description.samples);
    for (size_t index = 0; index < planned_.transfers.size(); ++index) {
      const PlannedTransfer& transfer = planned_.transfers[index];
      const Edge& edge = planned_.description.edges[transfer.index / 2];
      if (transfer.plan == nullptr) return NothingToCarryOut(edge);
      const auto size = std::ranges::find(sizes, transfer.samples, &MicrobatchSize::samples);
      v1::PipelineProgram::Transfer out;
      out.set_edge(transfer.index / 2);
      out.set_backward(!OpTable::IsForward(transfer.index));
      out.set_from(edge.from);
      out.set_to(edge.to);
      out.set_samples(transfer.samples);
      out.set_buffers(transfer.buffers);
      // The plan's number in the keys of messages: the same at all workers, and never 0.
      out.set_plan(
          static_cast<uint32_t>(1 + transfer.index * std::ssize(sizes) + (size - sizes.begin())));
      for (const auto& tensor : edge.tensors) out.add_tensors(tensor.tensor.name);
      RETURN_IF_ERROR(AddTransfer(static_cast<int32_t>(index), out));
    }
    return absl::OkStatus();
  }

  // Gives its part to every worker at one of its ends.
  absl::Status AddTransfer(int32_t transfer, const v1::PipelineProgram::Transfer& message) {
    ASSIGN_OR_RETURN(const auto parts, cutter_.Cut(*planned_.transfers[transfer].plan));
    for (const auto& [worker, part] : parts) {
      PlannedProgram& program = programs_[worker];
      v1::PipelineProgram::Transfer& out = *program.message.add_transfers() = message;
      *out.mutable_part() = ToProto(part);
      program.transfers.push_back(transfer);
    }
    return absl::OkStatus();
  }

  absl::Status AddRanks() {
    ASSIGN_OR_RETURN(const std::vector<std::string> actions, ActionsOfRanks());
    const PipelineDescription& description = planned_.description;
    for (RankIndex rank = 0; rank < std::ssize(description.ranks); ++rank) {
      ASSIGN_OR_RETURN(const auto workers, cutter_.WorkersOf(rank, *description.ranks[rank].mesh));
      for (const size_t worker : workers) AddRank(rank, actions[rank], programs_[worker].message);
    }
    return absl::OkStatus();
  }

  void AddRank(RankIndex rank, const std::string& actions, v1::PipelineProgram& program) const {
    v1::PipelineProgram::Rank& out = *program.add_ranks();
    out.set_rank(rank);
    out.set_actions(actions);
    const auto& stages = planned_.description.stages;
    for (StageIndex index = 0; index < std::ssize(stages); ++index) {
      const PipelineDescription::Stage& stage = stages[index];
      if (stage.rank != rank) continue;
      v1::PipelineProgram::Stage& out_stage = *program.add_stages();
      out_stage.set_stage(index);
      out_stage.set_rank(rank);
      out_stage.set_forward_seconds(stage.forward_seconds);
      out_stage.set_input_gradient_seconds(stage.input_gradient_seconds);
      out_stage.set_weight_gradient_seconds(stage.weight_gradient_seconds);
    }
    for (const PairProfile& pair : planned_.description.pairs) {
      if (stages[pair.forward].rank != rank) continue;
      v1::PipelinePair& out_pair = *program.add_pairs();
      out_pair.set_forward_stage(pair.forward);
      out_pair.set_backward_stage(pair.backward);
      out_pair.set_seconds(pair.seconds);
    }
  }

  absl::StatusOr<std::vector<std::string>> ActionsOfRanks() const {
    const OpTable& ops = *planned_.ops;
    std::vector<std::string> actions(planned_.description.ranks.size());
    const auto add = [&actions](RankIndex rank, absl::string_view action) {
      absl::StrAppend(&actions[rank], actions[rank].empty() ? "" : " ", action);
    };
    if (planned_.model != TransferModel::kBlocking) {
      for (OpIndex op = 0; op < ops.size(); ++op) add(ops.rank_of(op), ToString(ops.op(op)));
      return actions;
    }
    // Ranks that block meet at every transfer, so both ends have it at the same point of one order.
    ASSIGN_OR_RETURN(const std::vector<BlockingStep> steps, OrderBlockingSteps(ops));
    for (const BlockingStep& step : steps) {
      const Op& op = ops.op(step.op);
      if (step.is_op) {
        add(ops.rank_of(step.op), ToString(op));
        continue;
      }
      const std::string transfer = TransferText(step.transfer, op.microbatch);
      add(ops.rank_of(step.op), transfer);
      add(ops.rank_of(ops.ConsumerOf(step.transfer, op.microbatch)), transfer);
    }
    return actions;
  }

  // "0>1F3", of its gradient "1>0B3".
  std::string TransferText(TransferIndex transfer, MicrobatchIndex microbatch) const {
    const EdgeProfile& edge = planned_.ops->EdgeOf(transfer);
    return OpTable::IsForward(transfer) ? absl::StrCat(edge.from, ">", edge.to, "F", microbatch)
                                        : absl::StrCat(edge.to, ">", edge.from, "B", microbatch);
  }

  void AddMicrobatches() {
    v1::PipelineProgram runs;
    for (const int64_t samples : planned_.description.samples) {
      const int last = runs.microbatches_size() - 1;
      if (last < 0 || runs.microbatches(last).samples() != samples) {
        runs.add_microbatches()->set_samples(samples);
      }
      auto& run = *runs.mutable_microbatches(runs.microbatches_size() - 1);
      run.set_count(run.count() + 1);
    }
    for (PlannedProgram& program : programs_) {
      *program.message.mutable_microbatches() = runs.microbatches();
    }
  }

  const PlannedPipeline& planned_;
  const PlanCutter cutter_;
  std::vector<PlannedProgram> programs_;
};

}  // namespace

absl::StatusOr<std::vector<PlannedProgram>> MakeWorkerPrograms(
    const PlannedPipeline& planned, const std::vector<std::vector<DeviceId>>& devices_of_worker) {
  return ProgramMaker(planned, devices_of_worker).Make();
}

}  // namespace crossmesh
