#include "controller/dispatch/iteration_measurement.h"

#include "planner/pipeline/planning/planned_pipeline.h"

#include <algorithm>
#include <string>
#include <utility>

#include <google/protobuf/repeated_field.h>

namespace crossmesh {
namespace {

using Numbers = google::protobuf::RepeatedField<int64_t>;
using OpTimes = v1::RunProgramResponse::OpTimes;
using TransferTimes = v1::RunProgramResponse::TransferTimes;

// On the hosts' clocks, in nanoseconds. 0: no worker has told.
struct Span {
  int64_t begin = 0;
  int64_t end = 0;
};

double Seconds(int64_t nanoseconds) { return static_cast<double>(nanoseconds) * 1e-9; }

Span WholeOf(const std::vector<WorkerReport>& reports) {
  Span whole;
  for (const WorkerReport& worker : reports) {
    for (const OpTimes& rank : worker.report.ops()) {
      for (const int64_t begin : rank.begin_ns()) {
        if (begin != 0 && (whole.begin == 0 || begin < whole.begin)) whole.begin = begin;
      }
      for (const int64_t end : rank.end_ns()) whole.end = std::max(whole.end, end);
    }
  }
  return whole;
}

class Measurer {
 public:
  Measurer(const PlannedPipeline& planned, const std::vector<WorkerReport>& reports)
      : planned_(planned), reports_(reports), origin_(WholeOf(reports).begin) {
    const int64_t times = planned.ops->size() + TransfersOfIteration();
    tells_times_ = times <= kMeasuredTimesMax;
  }

  v1::PipelineMeasurement Measure() && {
    if (tells_times_) MeasureRanks();
    MeasureTransfers();
    return std::move(measured_);
  }

 private:
  struct Transfer {
    std::vector<Span> messages;  // in the order of the ops
    std::vector<double> first_bytes;
  };

  int64_t TransfersOfIteration() const {
    return planned_.ops->transfers() * std::ssize(planned_.description.samples);
  }

  void MeasureRanks() {
    const OpTable& ops = *planned_.ops;
    std::vector<Span> spans(ops.size());
    for (const WorkerReport& worker : reports_) {
      for (const OpTimes& times : worker.report.ops()) AddOps(times, spans);
    }
    for (RankIndex rank = 0; rank < planned_.profile.ranks(); ++rank) {
      v1::PipelineMeasurement::Rank& out = *measured_.add_ranks();
      out.set_rank(rank);
      for (OpIndex step = ops.first(rank); step < ops.first(rank + 1); step = ops.EndOf(step)) {
        Tell(ops.NameOfStep(step), spans[step], *out.mutable_ops());
      }
    }
  }

  void AddOps(const OpTimes& times, std::vector<Span>& spans) const {
    const OpTable& ops = *planned_.ops;
    // Reports come from outside, and one may not fit the plan: it is left out.
    if (times.rank() < 0 || times.rank() >= planned_.profile.ranks()) return;
    const OpIndex first = ops.first(times.rank());
    const OpIndex count = ops.first(times.rank() + 1) - first;
    if (times.begin_ns_size() != count || times.end_ns_size() != count) return;
    for (OpIndex i = 0; i < count; ++i) {
      Span& span = spans[first + i];
      span.begin = span.begin == 0 ? times.begin_ns(i) : std::min(span.begin, times.begin_ns(i));
      span.end = std::max(span.end, times.end_ns(i));
    }
  }

  void Tell(const std::string& name, const Span& span, v1::PipelineTimes& times) const {
    if (span.begin == 0 || span.end == 0) return;
    times.add_name(name);
    times.add_begin(Seconds(span.begin - origin_));
    times.add_end(Seconds(span.end - origin_));
  }

  void MeasureTransfers() {
    std::vector<Transfer> transfers(planned_.transfers.size());
    for (const WorkerReport& worker : reports_) {
      for (const TransferTimes& times : worker.report.transfers()) {
        if (times.transfer() < 0 || times.transfer() >= std::ssize(worker.transfers)) continue;
        AddMessages(times, transfers[worker.transfers[times.transfer()]]);
      }
    }
    for (size_t i = 0; i < transfers.size(); ++i) TellTransfer(planned_.transfers[i], transfers[i]);
  }

  static void AddMessages(const TransferTimes& times, Transfer& transfer) {
    const auto at = [](const Numbers& numbers, int i) {
      return i < numbers.size() ? numbers.Get(i) : 0;
    };
    const int count = std::max(times.produced_ns_size(), times.arrived_ns_size());
    if (count > std::ssize(transfer.messages)) transfer.messages.resize(count);
    for (int i = 0; i < count; ++i) {
      Span& message = transfer.messages[i];
      message.begin = std::max(message.begin, at(times.produced_ns(), i));
      message.end = std::max(message.end, at(times.arrived_ns(), i));
      if (at(times.produced_ns(), i) != 0) {
        transfer.first_bytes.push_back(Seconds(at(times.first_byte_ns(), i)));
      }
    }
  }

  void TellTransfer(const PlannedTransfer& planned, Transfer& transfer) {
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
      if (message.begin == 0 || message.end == 0) continue;
      seconds.push_back(Seconds(message.end - message.begin));
      if (!tells_times_) continue;
      Tell(ToString(Unfused(ops.op(op))), message, *out.mutable_messages());
    }
    out.set_transfer_seconds(Median(std::move(seconds)));
    out.set_first_byte_seconds(Median(std::move(transfer.first_bytes)));
  }

  const PlannedPipeline& planned_;
  const std::vector<WorkerReport>& reports_;
  const int64_t origin_;
  bool tells_times_ = true;
  v1::PipelineMeasurement measured_;
};

}  // namespace

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto half = values.begin() + std::ssize(values) / 2;
  std::ranges::nth_element(values, half);
  if (values.size() % 2 == 1) return *half;
  return (*half + *std::max_element(values.begin(), half)) / 2;
}

double IterationSeconds(const std::vector<WorkerReport>& reports) {
  const Span whole = WholeOf(reports);
  return Seconds(whole.end - whole.begin);
}

v1::PipelineMeasurement MeasureIteration(const PlannedPipeline& planned,
                                         const std::vector<WorkerReport>& reports) {
  return Measurer(planned, reports).Measure();
}

}  // namespace crossmesh
