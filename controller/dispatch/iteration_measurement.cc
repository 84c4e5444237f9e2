#include "controller/dispatch/iteration_measurement.h"

#include "planner/layers/planned_layers.h"
#include "planner/pipeline/planning/planned_pipeline.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace crossmesh {
namespace {

using Span = IterationTimes::Span;

std::vector<int32_t> OpsOfRanks(const OpTable& ops) {
  std::vector<int32_t> counts;
  for (RankIndex rank = 0; rank < ops.profile().ranks(); ++rank) {
    counts.push_back(ops.first(rank + 1) - ops.first(rank));
  }
  return counts;
}

class Measurer {
 public:
  Measurer(const PlannedPipeline& planned, const std::vector<WorkerReport>& reports)
      : planned_(planned), times_(reports, OpsOfRanks(*planned.ops), planned.transfers.size()) {
    const int64_t times = planned.ops->size() + TransfersOfIteration();
    tells_times_ = times <= kMeasuredTimesMax;
  }

  v1::PipelineMeasurement Measure() && {
    if (tells_times_) MeasureRanks();
    for (size_t i = 0; i < planned_.transfers.size(); ++i) {
      TellTransfer(planned_.transfers[i], times_.transfer(i));
    }
    return std::move(measured_);
  }

 private:
  int64_t TransfersOfIteration() const {
    return planned_.ops->transfers() * std::ssize(planned_.description.samples);
  }

  void MeasureRanks() {
    const OpTable& ops = *planned_.ops;
    for (RankIndex rank = 0; rank < planned_.profile.ranks(); ++rank) {
      v1::PipelineMeasurement::Rank& out = *measured_.add_ranks();
      out.set_rank(rank);
      const OpIndex first = ops.first(rank);
      for (OpIndex step = first; step < ops.first(rank + 1); step = ops.EndOf(step)) {
        times_.Tell(ops.NameOfStep(step), times_.ops(rank)[step - first], *out.mutable_ops());
      }
    }
  }

  void TellTransfer(const PlannedTransfer& planned, const IterationTimes::Transfer& transfer) {
    const OpTable& ops = *planned_.ops;
    v1::PipelineMeasurement::Transfer& out = *measured_.add_transfers();
    out.set_edge(planned.index / 2);
    out.set_backward(!OpTable::IsForward(planned.index));
    out.set_samples(planned.samples);
    std::vector<double> seconds;
    // Workers tell of messages in the order in which the ops that produce them come.
    size_t order = 0;
    const RankIndex rank = ops.rank_of(ops.ProducerOf(planned.index, 0));
    for (OpIndex op = ops.first(rank); op < ops.first(rank + 1); ++op) {
      const MicrobatchIndex m = ops.op(op).microbatch;
      if (ops.ProducerOf(planned.index, m) != op ||
          planned_.description.samples[m] != planned.samples) {
        continue;
      }
      if (order == transfer.messages.size()) break;
      const Span& message = transfer.messages[order++];
      if (!message.is_known()) continue;
      seconds.push_back(message.seconds());
      if (!tells_times_) continue;
      times_.Tell(ToString(Unfused(ops.op(op))), message, *out.mutable_messages());
    }
    out.set_transfer_seconds(Median(std::move(seconds)));
    out.set_first_byte_seconds(Median(transfer.first_bytes));
  }

  const PlannedPipeline& planned_;
  const IterationTimes times_;
  bool tells_times_ = true;
  v1::PipelineMeasurement measured_;
};

std::vector<int32_t> OpsOfRanks(const LayerProgram& program) {
  std::vector<int32_t> counts(program.ranks.size());
  for (const LayerProgram::Op& op : program.ops) ++counts[op.rank];
  return counts;
}

class LayerMeasurer {
 public:
  LayerMeasurer(const PlannedLayers& planned, const std::vector<WorkerReport>& reports)
      : program_(planned.program),
        times_(reports, OpsOfRanks(program_), program_.transfers.size()) {
    int64_t times = std::ssize(program_.ops);
    for (const LayerProgram::Transfer& transfer : program_.transfers) {
      times += std::ssize(transfer.messages);
    }
    tells_times_ = times <= kMeasuredTimesMax;
  }

  v1::PipelineMeasurement Measure() && {
    if (tells_times_) MeasureRanks();
    for (size_t i = 0; i < program_.transfers.size(); ++i) {
      TellTransfer(program_.transfers[i], times_.transfer(i));
    }
    return std::move(measured_);
  }

 private:
  void MeasureRanks() {
    for (RankIndex rank = 0; rank < std::ssize(program_.ranks); ++rank) {
      measured_.add_ranks()->set_rank(rank);
    }
    std::vector<size_t> next(program_.ranks.size());
    for (const LayerProgram::Op& op : program_.ops) {
      const Span& span = times_.ops(op.rank)[next[op.rank]++];
      times_.Tell(op.name, span, *measured_.mutable_ranks(op.rank)->mutable_ops());
    }
  }

  void TellTransfer(const LayerProgram::Transfer& transfer, const IterationTimes::Transfer& times) {
    v1::PipelineMeasurement::Transfer& out = *measured_.add_transfers();
    out.set_name(transfer.name);
    std::vector<double> seconds;
    const size_t told = std::min(times.messages.size(), transfer.messages.size());
    for (size_t m = 0; m < told; ++m) {
      const Span& message = times.messages[m];
      if (!message.is_known()) continue;
      seconds.push_back(message.seconds());
      if (!tells_times_) continue;
      times_.Tell(program_.ops[transfer.messages[m].producer].name, message,
                  *out.mutable_messages());
    }
    out.set_transfer_seconds(Median(std::move(seconds)));
    out.set_first_byte_seconds(Median(times.first_bytes));
  }

  const LayerProgram& program_;
  const IterationTimes times_;
  bool tells_times_ = true;
  v1::PipelineMeasurement measured_;
};

}  // namespace

v1::PipelineMeasurement MeasureIteration(const PlannedPipeline& planned,
                                         const std::vector<WorkerReport>& reports) {
  return Measurer(planned, reports).Measure();
}

v1::PipelineMeasurement MeasureIteration(const PlannedLayers& planned,
                                         const std::vector<WorkerReport>& reports) {
  return LayerMeasurer(planned, reports).Measure();
}

}  // namespace crossmesh
