#include "worker/service/pipeline_execution_service.h"

#include "worker/pipeline/served_program.h"
#include "worker/service/control_stream.h"

namespace crossmesh {

grpc::ServerBidiReactor<v1::RunProgramRequest, v1::RunProgramResponse>*
PipelineExecutionService::RunProgram(grpc::CallbackServerContext* /*context*/) {
  return ControlStream<v1::RunProgramRequest, v1::RunProgramResponse, ServedProgram>::Open(
      host_.control(), host_);
}

}  // namespace crossmesh
