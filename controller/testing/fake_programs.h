#pragma once

#include "common/base/mutex.h"
#include "crossmesh/v1/pipeline_execution_service.grpc.pb.h"

#include <cstdint>
#include <limits>
#include <vector>

namespace crossmesh {

// The pipelines of a worker that computes nothing: it accepts programs and answers iterations.
// Thread-safe.
class FakePrograms final : public v1::PipelineExecutionService::CallbackService {
 public:
  enum class Manner {
    kDiligent,  // accepts, and completes every iteration at once
    kHolding,   // accepts, and completes none
    kRefusing,  // ends the call with ResourceExhausted
    kFailing,   // accepts, and fails every iteration
  };

  void SetManner(Manner manner);
  // It completes none from this one on.
  void HoldFrom(int64_t iteration);
  // Since the start.
  struct Counts {
    int programs = 0;    // that were accepted
    int iterations = 0;  // that were begun
    int stops = 0;       // with a reason
    int ends = 0;        // without
  };
  Counts counts() const;
  v1::RunProgramRequest::Start last_start() const;
  v1::PipelineProgram last_program() const;
  // Those that were begun, in their order.
  std::vector<int64_t> begun() const;
  // Waits until so many iterations were begun.
  void WaitForIterations(int iterations);

  grpc::ServerBidiReactor<v1::RunProgramRequest, v1::RunProgramResponse>* RunProgram(
      grpc::CallbackServerContext* context) override;

 private:
  class Call;

  bool Holds(int64_t iteration) const;

  mutable Mutex mutex_;
  CondVar changed_;
  Manner manner_ ABSL_GUARDED_BY(mutex_) = Manner::kDiligent;
  int64_t hold_from_ ABSL_GUARDED_BY(mutex_) = std::numeric_limits<int64_t>::max();
  std::vector<int64_t> begun_ ABSL_GUARDED_BY(mutex_);
  Counts counts_ ABSL_GUARDED_BY(mutex_);
  v1::RunProgramRequest::Start last_start_ ABSL_GUARDED_BY(mutex_);
  v1::PipelineProgram last_program_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace crossmesh
