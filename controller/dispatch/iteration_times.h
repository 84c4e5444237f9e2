#pragma once

#include "crossmesh/v1/pipeline_execution_service.pb.h"
#include "crossmesh/v1/pipeline_service.pb.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace crossmesh {

// What a worker says of a complete iteration.
struct WorkerReport {
  std::vector<int32_t> transfers;  // of its program, by their places in the plan
  v1::RunProgramResponse::IterationReport report;
};

// From the begin of the first op to the end of the last one; 0: no op was reported. Hosts' clocks
// are taken to agree.
double IterationSeconds(const std::vector<WorkerReport>& reports);

// The middle one, or the mean of the two that are; 0 of none.
double Median(std::vector<double> values);

// Most ops and transfers whose times are told one by one: with more, clients' messages would grow
// too large.
inline constexpr int64_t kMeasuredTimesMax = 200'000;

// The reports of an iteration, joined. An op of several workers begins at the first and ends at the
// last of them. A message begins when the last sender has produced it, and ends when the last
// receiver has it. Reports come from outside: what does not fit the plan is left out. Immutable.
class IterationTimes {
 public:
  // On the hosts' clocks, in nanoseconds. 0: no worker has told.
  struct Span {
    int64_t begin = 0;
    int64_t end = 0;
    bool is_known() const { return begin != 0 && end != 0; }
    double seconds() const { return static_cast<double>(end - begin) * 1e-9; }
  };
  struct Transfer {
    std::vector<Span> messages;  // in the order of the ops
    std::vector<double> first_bytes;
  };

  // Of a plan with so many ops on each rank, and so many transfers. Cost: linear in the reports.
  IterationTimes(const std::vector<WorkerReport>& reports, const std::vector<int32_t>& ops_of_ranks,
                 size_t transfers);

  const std::vector<Span>& ops(int32_t rank) const { return ops_[rank]; }
  const Transfer& transfer(size_t index) const { return transfers_[index]; }
  // In seconds from the begin of the first op, unless nobody has told of it.
  void Tell(const std::string& name, const Span& span, v1::PipelineTimes& times) const;

 private:
  void AddOps(const v1::RunProgramResponse::OpTimes& times);

  int64_t origin_ = 0;
  std::vector<std::vector<Span>> ops_;  // [rank][place]
  std::vector<Transfer> transfers_;
};

}  // namespace crossmesh
