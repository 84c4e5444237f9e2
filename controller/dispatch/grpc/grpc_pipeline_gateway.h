#pragma once

#include "controller/dispatch/grpc/open_calls.h"
#include "controller/dispatch/grpc/worker_stubs.h"
#include "controller/dispatch/pipeline_gateway.h"
#include "crossmesh/v1/pipeline_execution_service.grpc.pb.h"

#include <memory>
#include <string>

namespace crossmesh {

// Reaches workers over gRPC: one RunProgram call, without a deadline, for each program.
// Thread-safe; never blocks.
class GrpcPipelineGateway final : public PipelineGateway {
 public:
  // `insecure` allows addresses that are not local.
  explicit GrpcPipelineGateway(bool insecure);
  // As Stop.
  ~GrpcPipelineGateway() override;

  // An address that no channel can be made to ends the call at once, with the reason.
  std::unique_ptr<ProgramCall> RunProgram(const std::string& worker_address,
                                          const v1::RunProgramRequest::Start& start,
                                          std::shared_ptr<const std::string> program,
                                          ProgramListener& listener) override;

  // Nobody, or somebody else, is at this address now. Calls in progress go on. The next call makes
  // the connection: most workers run no pipeline.
  void Forget(const std::string& worker_address) { stubs_.Forget(worker_address); }

  // Breaks all calls off, and returns when every listener has heard OnCallEnded. Repeatable. Calls
  // end at once from now on. Blocks.
  void Stop();

 private:
  class Call;

  WorkerStubs<v1::PipelineExecutionService> stubs_;
  const std::unique_ptr<OpenCalls<Call>> calls_;
};

}  // namespace crossmesh
