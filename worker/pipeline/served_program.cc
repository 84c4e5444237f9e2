#include "worker/pipeline/served_program.h"

#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/event_loop/event_loop.h"
#include "worker/pipeline/program_host.h"
#include "worker/pipeline/rank_queue.h"
#include "worker/pipeline/rehearsal.h"
#include "worker/pipeline/running_program.h"
#include "worker/pipeline/transfer_memory.h"

#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {

void ServedProgram::OnRequest(const v1::RunProgramRequest& request) {
  if (over_) return;
  const absl::Status status = Handle(request);
  if (status.ok()) return;
  over_ = true;
  if (program_ == nullptr) return caller_->End(status);
  StopProgram(status);
}

void ServedProgram::OnGone() {
  if (std::exchange(over_, true) || program_ == nullptr) return;
  StopProgram(absl::CancelledError("the controller is gone"));
}

void ServedProgram::GiveUp(const absl::Status& why) {
  host_.control().Post([self = shared_from_this(), why] {
    if (!std::exchange(self->over_, true)) self->StopProgram(why);
  });
}

absl::Status ServedProgram::Handle(const v1::RunProgramRequest& request) {
  using Message = v1::RunProgramRequest::MessageCase;
  const Message message = request.message_case();
  if (message == Message::kStart) return OnStart(request.start());
  if (message == Message::kPiece) return OnPiece(request.piece());
  if (waits_ && message == Message::kStop) {
    over_ = true;
    caller_->End(absl::OkStatus());
    return absl::OkStatus();
  }
  if (program_ == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("run program: expected ",
                                                   start_.has_value() ? "piece" : "start",
                                                   ", found message ", message));
  }
  switch (message) {
    case Message::kBeginIteration:
      host_.data().Post(
          [self = shared_from_this(), iteration = request.begin_iteration().iteration()] {
            self->BeginIteration(iteration);
          });
      return absl::OkStatus();
    case Message::kStop:
      over_ = true;
      StopProgram(request.stop().reason().empty() ? absl::OkStatus()
                                                  : absl::CancelledError(request.stop().reason()));
      return absl::OkStatus();
    case Message::kStart:
    case Message::kPiece:
    case Message::MESSAGE_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("run program: expected a message, found none that is known");
}

absl::Status ServedProgram::OnStart(const v1::RunProgramRequest::Start& start) {
  if (start_.has_value()) {
    return absl::InvalidArgumentError("run program: expected one start, found a second one");
  }
  ASSIGN_OR_RETURN(start_, FromProto(start));
  RETURN_IF_ERROR(host_.CheckIsMeant(*start_));
  return host_.Obey(start_->epoch);
}

absl::Status ServedProgram::OnPiece(const v1::Piece& piece) {
  if (!start_.has_value() || program_ != nullptr || waits_) {
    return absl::InvalidArgumentError(
        "run program: expected a piece between start and the first iteration");
  }
  ASSIGN_OR_RETURN(std::optional<std::string> bytes,
                   bytes_.Add(piece, absl::StrCat("program of run ", start_->run_id)));
  if (!bytes.has_value()) return absl::OkStatus();
  program_bytes_ = *std::move(bytes);
  return StartAlone();
}

// Both would need memory, and one process computes for both.
absl::Status ServedProgram::StartAlone() {
  ASSIGN_OR_RETURN(waits_, host_.GiveUpOlder(*start_, [self = shared_from_this()] {
    if (self->over_) return;
    const absl::Status status = self->StartAlone();
    if (status.ok()) return;
    self->over_ = true;
    self->caller_->End(status);
  }));
  if (!waits_) return StartProgram();
  LogInfo("program_waits", {{"run", start_->run_id}, {"epoch", start_->epoch}});
  return absl::OkStatus();
}

absl::Status ServedProgram::StartProgram() {
  const std::string bytes = std::exchange(program_bytes_, {});
  ASSIGN_OR_RETURN(std::shared_ptr<const ProgramMemory> memory, host_.Prepare(*start_, bytes));
  LogInfo("program_started", {{"run", start_->run_id}, {"pipeline", start_->pipeline}});
  program_ = std::make_unique<RunningProgram>(RunningProgram::Ports{.data = host_.data(),
                                                                    .replayer = host_.replayer(),
                                                                    .clock = host_.clock(),
                                                                    .listener = *this},
                                              host_.worker(), *start_, std::move(memory));
  host_.Enter(shared_from_this(), *start_);
  host_.data().Post([self = shared_from_this()] { self->Open(); });
  return absl::OkStatus();
}

void ServedProgram::StopProgram(absl::Status why) {
  host_.data().Post([self = shared_from_this(), why = std::move(why)] {
    // Cancelled is what was asked for, by a stop or by the end of the worker: no error of the call.
    if (!absl::IsCancelled(why)) self->end_.Update(why);
    self->program_->Stop(why);
  });
}

void ServedProgram::Open() {
  const absl::Status status = program_->Open();
  if (!status.ok()) {
    end_.Update(status);
    return program_->Stop(status);
  }
  if (start_->rehearsal) {
    for (const auto& queue : program_->queues()) {
      rehearsals_.emplace_back("rehearsal", [queue] { Rehearse(*queue); });
    }
  } else {
    host_.Offer(program_->queues());
  }
}

void ServedProgram::BeginIteration(int64_t iteration) {
  const absl::Status status = program_->BeginIteration(iteration);
  if (status.ok()) return;
  end_.Update(status);
  program_->Stop(status);
}

void ServedProgram::OnReady(const absl::Status& status) {
  if (!status.ok()) return StopProgram(status);
  v1::RunProgramResponse response;
  response.mutable_accepted();
  caller_->Say(response);
}

void ServedProgram::OnReport(const v1::RunProgramResponse::IterationReport& report) {
  v1::RunProgramResponse response;
  *response.mutable_iteration_report() = report;
  caller_->Say(response);
}

void ServedProgram::OnStopped() {
  caller_->End(end_);
  LogInfo("program_ended", {{"run", start_->run_id}, {"pipeline", start_->pipeline}});
  // Goes there with the threads of a rehearsal, which have ended or do so soon.
  host_.control().Post([self = host_.Leave(this)] {});
}

}  // namespace crossmesh
