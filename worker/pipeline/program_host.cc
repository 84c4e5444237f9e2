#include "worker/pipeline/program_host.h"

#include "common/base/status_macros.h"
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
#include <absl/time/clock.h>

namespace crossmesh {

absl::StatusOr<std::shared_ptr<const ProgramMemory>> ProgramHost::Prepare(
    const ProgramStart& start, const std::string& bytes) const {
  RETURN_IF_ERROR(CheckRuns(start));
  ASSIGN_OR_RETURN(
      std::shared_ptr<const WorkerProgram> program,
      AdmitProgram(absl::StrCat("program of run ", start.run_id), bytes, ports_.memory));
  RETURN_IF_ERROR(CheckDevices(*program));
  return ProgramMemory::Create(std::move(program), ports_.make_arena);
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

absl::StatusOr<std::unique_ptr<PipelineLoop>> ProgramHost::WaitForLoop() {
  MutexLock lock(mutex_);
  for (;;) {
    while (offered_.empty() && !stopped_) changed_.Wait(mutex_);
    if (stopped_) {
      return absl::CancelledError(absl::StrCat("worker ", options_.worker, ": it stops"));
    }
    std::shared_ptr<RankQueue> queue = std::move(offered_.front());
    offered_.pop_front();
    // Programs may end before a process comes for them.
    if (!queue->WaitForEnd(absl::ZeroDuration())) return MakePipelineLoop(std::move(queue));
  }
}

void ProgramHost::Enter(const std::shared_ptr<ServedProgram>& program) {
  {
    MutexLock lock(mutex_);
    programs_.emplace(program.get(), program);
    // One that comes while the host stops is given up like those that were there.
    if (!stopped_) return;
  }
  program->GiveUp(absl::CancelledError(absl::StrCat("worker ", options_.worker, ": it stops")));
}

std::shared_ptr<ServedProgram> ProgramHost::Leave(ServedProgram* program) {
  MutexLock lock(mutex_);
  std::shared_ptr<ServedProgram> left = std::move(programs_.at(program));
  programs_.erase(program);
  changed_.SignalAll();
  return left;
}

void ProgramHost::Stop(absl::Duration timeout) {
  std::vector<std::shared_ptr<ServedProgram>> programs;
  {
    MutexLock lock(mutex_);
    stopped_ = true;
    offered_.clear();
    changed_.SignalAll();
    for (const auto& [key, program] : programs_) programs.push_back(program);
  }
  for (const auto& program : programs) {
    program->GiveUp(absl::CancelledError(absl::StrCat("worker ", options_.worker, ": it stops")));
  }
  const absl::Time until = absl::Now() + timeout;
  MutexLock lock(mutex_);
  while (!programs_.empty() && absl::Now() < until) changed_.WaitFor(mutex_, until - absl::Now());
}

}  // namespace crossmesh
