#pragma once

#include "crossmesh/v1/pipeline_execution_service.grpc.pb.h"
#include "worker/pipeline/program_host.h"

#include <grpcpp/support/server_callback.h>

namespace crossmesh {

// Serves RunProgram: brings each call's messages to the control loop, in order. Thread-safe.
class PipelineExecutionService final : public v1::PipelineExecutionService::CallbackService {
 public:
  // `host` outlives the server.
  explicit PipelineExecutionService(ProgramHost& host) : host_(host) {}

  grpc::ServerBidiReactor<v1::RunProgramRequest, v1::RunProgramResponse>* RunProgram(
      grpc::CallbackServerContext* context) override;

 private:
  ProgramHost& host_;
};

}  // namespace crossmesh
