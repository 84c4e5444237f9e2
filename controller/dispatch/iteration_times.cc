#include "controller/dispatch/iteration_times.h"

#include <algorithm>

#include <google/protobuf/repeated_field.h>

namespace crossmesh {
namespace {

using Numbers = google::protobuf::RepeatedField<int64_t>;
using OpTimes = v1::RunProgramResponse::OpTimes;
using TransferTimes = v1::RunProgramResponse::TransferTimes;
using Span = IterationTimes::Span;

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

void AddMessages(const TransferTimes& times, IterationTimes::Transfer& transfer) {
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
      transfer.first_bytes.push_back(static_cast<double>(at(times.first_byte_ns(), i)) * 1e-9);
    }
  }
}

}  // namespace

IterationTimes::IterationTimes(const std::vector<WorkerReport>& reports,
                               const std::vector<int32_t>& ops_of_ranks, size_t transfers)
    : origin_(WholeOf(reports).begin), transfers_(transfers) {
  for (const int32_t ops : ops_of_ranks) ops_.emplace_back(ops);
  for (const WorkerReport& worker : reports) {
    for (const OpTimes& times : worker.report.ops()) AddOps(times);
    for (const TransferTimes& times : worker.report.transfers()) {
      if (times.transfer() < 0 || times.transfer() >= std::ssize(worker.transfers)) continue;
      AddMessages(times, transfers_[worker.transfers[times.transfer()]]);
    }
  }
}

void IterationTimes::AddOps(const OpTimes& times) {
  if (times.rank() < 0 || times.rank() >= std::ssize(ops_)) return;
  std::vector<Span>& spans = ops_[times.rank()];
  const auto count = static_cast<int>(spans.size());
  if (times.begin_ns_size() != count || times.end_ns_size() != count) return;
  for (int i = 0; i < count; ++i) {
    Span& span = spans[i];
    span.begin = span.begin == 0 ? times.begin_ns(i) : std::min(span.begin, times.begin_ns(i));
    span.end = std::max(span.end, times.end_ns(i));
  }
}

void IterationTimes::Tell(const std::string& name, const Span& span,
                          v1::PipelineTimes& times) const {
  if (!span.is_known()) return;
  times.add_name(name);
  times.add_begin(Span{origin_, span.begin}.seconds());
  times.add_end(Span{origin_, span.end}.seconds());
}

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto half = values.begin() + std::ssize(values) / 2;
  std::ranges::nth_element(values, half);
  if (values.size() % 2 == 1) return *half;
  return (*half + *std::max_element(values.begin(), half)) / 2;
}

double IterationSeconds(const std::vector<WorkerReport>& reports) {
  return WholeOf(reports).seconds();
}

}  // namespace crossmesh
