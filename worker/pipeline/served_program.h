#pragma once

#include "common/base/thread.h"
#include "crossmesh/v1/pipeline_execution_service.pb.h"
#include "worker/pipeline/program_start.h"
#include "worker/pipeline/running_program.h"
#include "worker/wire/caller.h"
#include "worker/wire/piece_buffer.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/status.h>

namespace crossmesh {

class ProgramHost;

// Hears what a program says. Thread-safe.
using ProgramCaller = Caller<v1::RunProgramResponse>;

// The protocol of one RunProgram call, and its program: a start, the program in pieces, then
// iterations. What an older start of the same run has left here ends first. Confined to the control
// loop, but for what the program says.
class ServedProgram final : public std::enable_shared_from_this<ServedProgram>,
                            private ProgramObserver {
 public:
  // `host` must outlive it.
  ServedProgram(ProgramHost& host, std::shared_ptr<ProgramCaller> caller)
      : host_(host), caller_(std::move(caller)) {}

  // A message out of order or malformed ends the call with InvalidArgument, as does what the host
  // or the program refuses with its status.
  void OnRequest(const v1::RunProgramRequest& request);
  // No request comes any more: the program is given up.
  void OnGone();
  // Any thread.
  void GiveUp(const absl::Status& why);

 private:
  absl::Status Handle(const v1::RunProgramRequest& request);
  absl::Status OnStart(const v1::RunProgramRequest::Start& start);
  absl::Status OnPiece(const v1::Piece& piece);
  absl::Status StartAlone();
  absl::Status StartProgram();
  void StopProgram(absl::Status why);

  // On the data loop.
  void Open();
  void BeginIteration(int64_t iteration);
  void OnReady(const absl::Status& status) override;
  void OnReport(const v1::RunProgramResponse::IterationReport& report) override;
  void OnStopped() override;

  ProgramHost& host_;
  const std::shared_ptr<ProgramCaller> caller_;
  std::optional<ProgramStart> start_;
  PieceBuffer bytes_;
  std::string program_bytes_;  // all of them, until it is started
  bool waits_ = false;         // for an older program to end
  bool over_ = false;
  std::unique_ptr<RunningProgram> program_;  // from the last piece on
  std::vector<Thread> rehearsals_;
  absl::Status end_;  // of the data loop: what the call ends with
};

}  // namespace crossmesh
