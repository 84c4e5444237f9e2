#include "worker/gpu/executor/gpu_executor.h"

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/event_loop/event_loop.h"
#include "worker/gpu/communicators/communicator_life.h"
#include "worker/gpu/device/gpu.h"
#include "worker/gpu/device/look_pace.h"
#include "worker/gpu/executor/execution_resources.h"
#include "worker/gpu/executor/gpu_binding.h"
#include "worker/gpu/executor/gpu_execution.h"
#include "worker/gpu/executor/gpu_legs.h"
#include "worker/gpu/executor/gpu_task.h"

#include <algorithm>
#include <utility>

#include <absl/memory/memory.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {

using State = GpuExecution::State;

absl::StatusOr<std::unique_ptr<GpuExecutor>> GpuExecutor::Create(EventLoop& loop, Gpu& gpu,
                                                                 const RegisteredStaging& staging,
                                                                 const Options& options) {
  CHECK_GE(options.steps_ahead, 1);
  ASSIGN_OR_RETURN(auto shared, ExecutionResources::Create(gpu, staging, options.steps_ahead));
  return absl::WrapUnique(new GpuExecutor(loop, gpu, std::move(shared), options));
}

GpuExecutor::GpuExecutor(EventLoop& loop, Gpu& gpu, std::unique_ptr<ExecutionResources> shared,
                         const Options& options)
    : loop_(loop),
      gpu_(gpu),
      options_(options),
      shared_(std::move(shared)),
      pace_(std::make_unique<LookPace>(options.look_min, options.look_max)) {}

GpuExecutor::~GpuExecutor() {
  // What does not end uses streams and events until the process ends, and would be waited for.
  if (!health_.ok()) static_cast<void>(shared_.release());
}

absl::StatusOr<std::shared_ptr<GpuBinding>> GpuExecutor::Bind(GpuLegs legs) {
  return GpuBinding::Create(gpu_, std::move(legs), *shared_->upload);
}

absl::StatusOr<std::shared_ptr<GpuBinding>> GpuExecutor::Bind(
    std::shared_ptr<const CompiledPart> compiled, GpuTiles tiles) {
  return Bind(OneLeg(std::move(compiled), std::move(tiles)));
}

absl::Status GpuExecutor::Start(GpuTaskSpec spec, TaskObserver& observer) {
  RETURN_IF_ERROR(health_);
  const TaskKey key = spec.key;
  if (Find(key) != nullptr) {
    return absl::AlreadyExistsError(absl::StrCat(key.ToString(), " was started before"));
  }
  if (tasks_.size() >= options_.tasks_max) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "tasks of ", gpu_.uuid(), ": expected at most ", options_.tasks_max, ", found as many"));
  }
  RETURN_IF_ERROR(GpuExecution::Validate(spec, shared_->staging));
  const absl::Duration deadline = spec.deadline;
  Task& task = tasks_.emplace_back();
  task.execution = std::make_unique<GpuExecution>(std::move(spec), *shared_, observer);
  task.limit = loop_.RunAfter(deadline, [this, key] {
    if (GpuExecution* const execution = Find(key)) execution->OnDeadline();
    RequestLook();
  });
  RequestLook();
  return absl::OkStatus();
}

void GpuExecutor::Cancel(const TaskKey& key, const absl::Status& why) {
  GpuExecution* const execution = Find(key);
  if (execution == nullptr) return;
  execution->Fail(why);
  RequestLook();
}

void GpuExecutor::OnCommunicatorChange(const Communicator& communicator, CommunicatorState state,
                                       const absl::Status& cause) {
  // A task sees for itself when its calls are through.
  if (state == CommunicatorState::kReady || state == CommunicatorState::kExchanging) return;
  for (const Task& task : tasks_) {
    if (task.execution->spec().communicator != &communicator) continue;
    task.execution->OnCommunicatorEnding(state, cause);
    RequestLook();
  }
}

std::optional<int64_t> GpuExecutor::MovedBytes(const TaskKey& key) const {
  const GpuExecution* const execution = Find(key);
  if (execution == nullptr) return std::nullopt;
  return execution->bytes().received + execution->bytes().copied;
}

std::optional<int64_t> GpuExecutor::StepsDone(const TaskKey& key) const {
  const GpuExecution* const execution = Find(key);
  if (execution == nullptr) return std::nullopt;
  return execution->steps_done();
}

void GpuExecutor::RequestLook() {
  if (std::exchange(is_look_requested_, true)) return;
  loop_.Cancel(next_look_);
  loop_.Post([this] { Look(); });
}

void GpuExecutor::Look() {
  is_look_requested_ = false;
  const bool is_moved = !tasks_.empty() && Advance(tasks_.front());
  // Not only the first can be over: tasks after it fail with its communicator, or are cancelled.
  ReportThoseOver();
  // An observer may have asked for a look. Of what is stopping the communicator's owner tells.
  if (is_look_requested_ || tasks_.empty() ||
      tasks_.front().execution->state() == State::kStopping) {
    return;
  }
  const auto [done, left] = tasks_.front().execution->found();
  if (is_moved) {
    pace_->Found(done, left);
  } else {
    pace_->Slow();
  }
  next_look_ = loop_.RunAfter(pace_->delay(), [this] { Look(); });
}

bool GpuExecutor::Advance(Task& task) {
  ++counters_.looks;
  GpuExecution& execution = *task.execution;
  bool is_moved = false;
  if (execution.state() == State::kWaiting) {
    execution.Begin();
    pace_->Reset();
    StartStallRound();
    is_moved = true;
  }
  is_moved = execution.Advance() || is_moved;
  // From its failure on the task has another limit: its deadline says nothing of how long NCCL
  // takes to stop what is on the streams.
  if (!execution.status().ok() && !execution.is_over() && !std::exchange(task.is_ending, true)) {
    loop_.Cancel(task.limit);
    task.limit = loop_.RunAfter(options_.end_limit, [this, key = execution.spec().key] {
      if (GpuExecution* const ending = Find(key)) ending->OnEndLimit();
      RequestLook();
    });
  }
  if (execution.state() == State::kFailed) AskToStop(execution);
  return is_moved;
}

void GpuExecutor::AskToStop(GpuExecution& execution) {
  const Communicator& communicator = *execution.spec().communicator;
  // States first: the owner may tell at once what becomes of the communicator.
  execution.OnStopAsked();
  const absl::Status stopped = absl::UnavailableError(
      absl::StrCat("the communicator is stopped: ", execution.status().message()));
  for (const Task& task : tasks_) {
    if (task.execution->spec().communicator == &communicator) task.execution->Fail(stopped);
  }
  execution.spec().owner->StopCommunicator(communicator, execution.status());
}

void GpuExecutor::ReportThoseOver() {
  for (size_t i = 0; i < tasks_.size();) {
    if (!health_.ok()) tasks_[i].execution->Fail(health_);
    if (!tasks_[i].execution->is_over()) {
      ++i;
      continue;
    }
    // Out of the list first, for the observer may start tasks, which are appended.
    Task over = std::move(tasks_[i]);
    tasks_.erase(tasks_.begin() + static_cast<ptrdiff_t>(i));
    if (i == 0) loop_.Cancel(stall_round_);
    loop_.Cancel(over.limit);
    Report(std::move(over));
  }
}

void GpuExecutor::Report(Task task) {
  GpuExecution& execution = *task.execution;
  if (execution.state() == State::kLost) health_.Update(gpu_.health());
  if (execution.state() == State::kHung) {
    health_.Update(absl::InternalError(absl::StrCat(
        gpu_.uuid(), ": what a task left does not end: ", execution.status().message())));
  }
  counters_.steps += execution.steps_done();
  const TaskReport report = execution.TakeReport();
  counters_.sent_bytes += report.sent_bytes;
  counters_.received_bytes += report.received_bytes;
  counters_.copied_bytes += report.copied_bytes;
  absl::Status outcome = report.status;
  for (const DeviceReport& device : report.devices) {
    if (absl::IsDataLoss(device.status)) counters_.checksum_failures++;
    outcome.Update(device.status);
    execution.observer().OnDeviceDone(report.key, device);
  }
  ++(outcome.ok() ? counters_.tasks_succeeded : counters_.tasks_failed);
  execution.observer().OnTaskDone(report);
  // What it holds is in use until the process ends.
  if (!health_.ok()) static_cast<void>(task.execution.release());
}

// There is a first task whenever the timer runs: it is cancelled with that.
void GpuExecutor::StartStallRound() {
  const absl::Duration limit = tasks_.front().execution->spec().stall_limit;
  stall_round_ = loop_.RunAfter(limit / StallCounter::kRoundsMax, [this] {
    if (tasks_.front().execution->OnStallRound()) {
      counters_.stalls++;
      RequestLook();
    }
    StartStallRound();
  });
}

GpuExecution* GpuExecutor::Find(const TaskKey& key) const {
  const auto found =
      std::ranges::find(tasks_, key, [](const Task& task) { return task.execution->spec().key; });
  return found == tasks_.end() ? nullptr : found->execution.get();
}

}  // namespace crossmesh
