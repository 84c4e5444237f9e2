#pragma once

#include "crossmesh/v1/pipeline_execution_service.pb.h"

#include <cstdint>
#include <memory>
#include <string>

#include <absl/status/status.h>

namespace crossmesh {

// What a worker says of its program. Any thread; never from inside a call of ProgramCall's methods.
class ProgramListener {
 public:
  virtual ~ProgramListener() = default;
  virtual void OnAccepted() = 0;
  virtual void OnReport(v1::RunProgramResponse::IterationReport report) = 0;
  // The call ended; nothing follows.
  virtual void OnCallEnded(const absl::Status& status) = 0;
};

// One RunProgram call to one worker. Thread-safe; methods never block. Destroying it cancels it.
class ProgramCall {
 public:
  virtual ~ProgramCall() = default;
  virtual void BeginIteration(int64_t iteration) = 0;
  // The last word. An empty reason: the run is done.
  virtual void Stop(const std::string& reason) = 0;
  // Ends the call at once, with Cancelled.
  virtual void Cancel() = 0;
};

// The way of pipelines to workers.
class PipelineGateway {
 public:
  virtual ~PipelineGateway() = default;
  // Sends the start and the program, a serialized v1::PipelineProgram. `listener` must live until
  // OnCallEnded.
  virtual std::unique_ptr<ProgramCall> RunProgram(const std::string& worker_address,
                                                  const v1::RunProgramRequest::Start& start,
                                                  std::shared_ptr<const std::string> program,
                                                  ProgramListener& listener) = 0;
};

}  // namespace crossmesh
