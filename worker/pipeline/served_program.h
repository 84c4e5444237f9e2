#pragma once

#include "common/base/thread.h"
#include "crossmesh/v1/pipeline_execution_service.pb.h"
#include "worker/pipeline/program_host.h"
#include "worker/pipeline/program_start.h"
#include "worker/pipeline/running_program.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/status.h>

namespace crossmesh {

// Whoever made a RunProgram call. Thread-safe.
class ProgramCaller {
 public:
  virtual ~ProgramCaller() = default;
  virtual void Say(const v1::RunProgramResponse& response) = 0;
  // Only the first counts.
  virtual void End(const absl::Status& status) = 0;
};

// The protocol of one RunProgram call, and its program: a start, the program in pieces, then
// iterations. Confined to the control loop, but for what the program says.
class ServedProgram final : public std::enable_shared_from_this<ServedProgram>,
                            public HostedProgram,
                            private ProgramObserver {
 public:
  static constexpr size_t kProgramBytesMax = size_t{64} << 20;

  // `host` must outlive it.
  ServedProgram(ProgramHost& host, std::shared_ptr<ProgramCaller> caller)
      : host_(host), caller_(std::move(caller)) {}

  // A message out of order or malformed ends the call with InvalidArgument, as does what the host
  // or the program refuses with its status.
  void OnRequest(const v1::RunProgramRequest& request);
  // No request comes any more: the program is given up.
  void OnGone();
  // Any thread.
  void GiveUp(const absl::Status& why) override;

 private:
  absl::Status Handle(const v1::RunProgramRequest& request);
  absl::Status OnStart(const v1::RunProgramRequest::Start& start);
  absl::Status OnPiece(const v1::RunProgramRequest::ProgramPiece& piece);
  absl::Status StartProgram();
  void StopProgram(absl::Status why);

  // On the data loop.
  void Open();
  void BeginIteration(int64_t iteration);
  void OnReport(const v1::RunProgramResponse::IterationReport& report) override;
  void OnStopped() override;

  ProgramHost& host_;
  const std::shared_ptr<ProgramCaller> caller_;
  std::optional<ProgramStart> start_;
  std::string bytes_;  // the pieces so far
  bool over_ = false;
  std::unique_ptr<RunningProgram> program_;  // from the last piece on
  std::vector<Thread> rehearsals_;
  absl::Status end_;  // of the data loop: what the call ends with
};

}  // namespace crossmesh
