#include "worker/pipeline/program_host.h"

#include "common/base/deadline.h"
#include "common/base/status_macros.h"
#include "common/event_loop/event_loop.h"
#include "worker/pipeline/admitted_program.h"
#include "worker/pipeline/pipeline_loop.h"
#include "worker/pipeline/program_start.h"
#include "worker/pipeline/rank_queue.h"
#include "worker/pipeline/served_program.h"
#include "worker/pipeline/transfer_memory.h"
#include "worker/pipeline/worker_program.h"

#include <algorithm>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/time/time.h>

namespace crossmesh {

absl::StatusOr<std::shared_ptr<const ProgramMemory>> ProgramHost::Prepare(
    const ProgramStart& start, const std::string& bytes) const {
  RETURN_IF_ERROR(CheckRuns(start));
  ASSIGN_OR_RETURN(std::shared_ptr<const WorkerProgram> program,
                   (start.layers ? AdmitLayerProgram : AdmitProgram)(
                       absl::StrCat("program of run ", start.run_id), bytes, ports_.memory));
  RETURN_IF_ERROR(CheckDevices(*program));
  return ProgramMemory::Create(std::move(program), ports_.make_arena);
}

absl::Status ProgramHost::CheckIsMeant(const ProgramStart& start) const {
  const auto self = std::ranges::find(start.peers, options_.worker, &ProgramStart::Peer::worker);
  if (self == start.peers.end() || self->incarnation == 0) return absl::OkStatus();
  if (self->incarnation == options_.incarnation) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(
      "worker ", options_.worker, ": expected a program for its process ", options_.incarnation,
      ", found one for process ", self->incarnation, ", whose place it has taken"));
}

absl::Status ProgramHost::CheckRuns(const ProgramStart& start) const {
  {
    MutexLock lock(mutex_);
    if (stopped_) {
      return absl::UnavailableError(absl::StrCat("worker ", options_.worker, ": it stops"));
    }
  }
  if (start.rehearsal || options_.computes) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("worker ", options_.worker,
                   ": expected a process that computes pipelines, found none: only a rehearsal can "
                   "run here"));
}

absl::Status ProgramHost::CheckDevices(const WorkerProgram& program) const {
  for (const WorkerProgram::Transfer& transfer : program.transfers) {
    const WorkerPart& part = transfer.part->prepared->part();
    for (const DeviceRank rank : part.spec().devices) {
      const DeviceId& device = part.tensors().devices()[rank];
      if (std::ranges::find(options_.devices, device) != options_.devices.end()) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("transfer ", transfer.Name(), ": expected devices of worker ",
                       options_.worker, " in host memory, found ", ToString(device)));
    }
  }
  return absl::OkStatus();
}

void ProgramHost::Offer(const std::vector<std::shared_ptr<RankQueue>>& queues) {
  MutexLock lock(mutex_);
  if (stopped_) return;
  offered_.insert(offered_.end(), queues.begin(), queues.end());
  changed_.SignalAll();
}

std::unique_ptr<PipelineLoop> ProgramHost::TakeLoop() {
  const MutexLock lock(mutex_);
  return TakeLoopLocked();
}

std::unique_ptr<PipelineLoop> ProgramHost::TakeLoopLocked() {
  while (!offered_.empty() && !stopped_) {
    std::shared_ptr<RankQueue> queue = std::move(offered_.front());
    offered_.pop_front();
    // Programs may end before a process comes for them.
    if (!queue->WaitForEnd(absl::ZeroDuration())) return MakePipelineLoop(std::move(queue));
  }
  return nullptr;
}

absl::StatusOr<std::unique_ptr<PipelineLoop>> ProgramHost::WaitForLoop(absl::Duration timeout) {
  const Deadline deadline(timeout);
  MutexLock lock(mutex_);
  for (;;) {
    if (std::unique_ptr<PipelineLoop> loop = TakeLoopLocked(); loop != nullptr) return loop;
    if (stopped_) {
      return absl::CancelledError(absl::StrCat("worker ", options_.worker, ": it stops"));
    }
    if (deadline.passed()) {
      return absl::DeadlineExceededError(
          absl::StrCat("worker ", options_.worker, ": expected a rank to compute within ",
                       absl::FormatDuration(timeout), ", found none"));
    }
    changed_.WaitFor(mutex_, deadline.left());
  }
}

absl::StatusOr<bool> ProgramHost::GiveUpOlder(const ProgramStart& start,
                                              std::function<void()> then) {
  const Order order(start.epoch, start.operation);
  std::vector<std::shared_ptr<ServedProgram>> older;
  {
    MutexLock lock(mutex_);
    for (auto& [key, entered] : programs_) {
      if (entered.run_id != start.run_id) continue;
      if (entered.order > order) {
        return absl::FailedPreconditionError(absl::StrCat(
            "program of run ", start.run_id, ": expected the newest start, found one of epoch ",
            entered.order.first, " that came after that of epoch ", start.epoch));
      }
      older.push_back(entered.program);
      if (older.size() == 1) entered.on_left.push_back(then);
    }
  }
  for (const auto& program : older) {
    program->GiveUp(absl::AbortedError(
        absl::StrCat("superseded by another start, of controller epoch ", start.epoch)));
  }
  return !older.empty();
}

void ProgramHost::Enter(const std::shared_ptr<ServedProgram>& program, const ProgramStart& start) {
  {
    MutexLock lock(mutex_);
    programs_[program.get()] = {
        .program = program, .run_id = start.run_id, .order = {start.epoch, start.operation}};
    // One that comes while the host stops is given up like those that were there.
    if (!stopped_) return;
  }
  program->GiveUp(absl::CancelledError(absl::StrCat("worker ", options_.worker, ": it stops")));
}

std::shared_ptr<ServedProgram> ProgramHost::Leave(ServedProgram* program) {
  Entered left;
  {
    MutexLock lock(mutex_);
    left = std::move(programs_.at(program));
    programs_.erase(program);
    changed_.SignalAll();
  }
  for (std::function<void()>& then : left.on_left) ports_.control.Post(std::move(then));
  return left.program;
}

void ProgramHost::Stop(absl::Duration timeout) {
  std::vector<std::shared_ptr<ServedProgram>> programs;
  {
    MutexLock lock(mutex_);
    stopped_ = true;
    offered_.clear();
    changed_.SignalAll();
    for (const auto& [key, entered] : programs_) programs.push_back(entered.program);
  }
  for (const auto& program : programs) {
    program->GiveUp(absl::CancelledError(absl::StrCat("worker ", options_.worker, ": it stops")));
  }
  const Deadline deadline(timeout);
  MutexLock lock(mutex_);
  while (!programs_.empty() && !deadline.passed()) changed_.WaitFor(mutex_, deadline.left());
}

}  // namespace crossmesh
