#include "controller/operation/pipeline_machine.h"

#include "common/base/error_place.h"
#include "controller/operation/worker_error.h"

#include <algorithm>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

namespace crossmesh {
namespace {

// Why a call that ought to go on has ended.
absl::Status EndOf(const absl::Status& status) {
  return status.ok() ? absl::UnavailableError("its call ended before the run did") : status;
}

}  // namespace

bool IsTerminal(PipelineRunState state) { return state >= PipelineRunState::kDone; }

std::vector<PipelineMachine::Action> PipelineMachine::Handle(const Event& event) {
  if (IsTerminal(state_)) return {};
  actions_.clear();
  std::visit([this](const auto& e) { On(e); }, event);
  Settle();
  return std::move(actions_);
}

PipelineMachine::Worker* PipelineMachine::FindOpen(const std::string& worker) {
  const auto found = workers_.find(worker);
  return found == workers_.end() || found->second.ended ? nullptr : &found->second;
}

bool PipelineMachine::all_ended() const {
  return std::ranges::all_of(workers_, [](const auto& entry) { return entry.second.ended; });
}

void PipelineMachine::On(const TakenUp& event) {
  complete_ = event.progress.complete;
  if (!event.progress.begun.has_value()) return;
  state_ = PipelineRunState::kWaiting;
  iteration_ = *event.progress.begun;
  const bool failed = event.progress.begun != complete_;
  if (failed) {
    FailIteration(absl::UnavailableError("the controller that ran it has ended"));
  } else {
    ++iteration_;
  }
  if (failed && EndsAtFailure()) return End(PipelineRunState::kFailed, failure_);
  if (iteration_ == options_.iterations) return End(PipelineRunState::kDone, absl::OkStatus());
  actions_.emplace_back(Publish{});
}

void PipelineMachine::On(const WorkersReady& event) {
  if (phase_ != Phase::kAwaiting) return;
  for (const std::string& worker : event.workers) workers_[worker];
  missing_ = absl::OkStatus();
  phase_ = Phase::kStarting;
  actions_.emplace_back(StartPrograms{++generation_});
  actions_.emplace_back(StartTimer{Wait::kStart});
}

void PipelineMachine::On(const WorkersMissing& event) {
  if (phase_ != Phase::kAwaiting) return;
  missing_ = event.status;
  if (!std::exchange(awaits_workers_, true)) actions_.emplace_back(StartTimer{Wait::kWorkers});
}

void PipelineMachine::On(const PreparationFailed& event) {
  if (phase_ == Phase::kAwaiting) End(PipelineRunState::kFailed, event.status);
}

void PipelineMachine::On(const Accepted& event) {
  Worker* worker = FindOpen(event.worker);
  if (worker == nullptr || phase_ != Phase::kStarting) return;
  worker->accepted = true;
  if (std::ranges::all_of(workers_, [](const auto& entry) { return entry.second.accepted; })) {
    Record();
  }
}

void PipelineMachine::Record() {
  phase_ = Phase::kRecording;
  PipelineProgress progress{.complete = complete_, .begun = iteration_};
  if (is_complete_) {
    progress.complete = iteration_;
    const bool goes_on = iteration_ + 1 < options_.iterations && !stop_reason_.has_value();
    if (goes_on) progress.begun = iteration_ + 1;
  }
  actions_.emplace_back(RecordProgress{progress});
}

void PipelineMachine::On(const ProgressRecorded& event) {
  if (phase_ != Phase::kRecording) return;
  if (!event.status.ok()) {
    refusal_ = event.status;
    return GiveUp(event.status);
  }
  const bool completed = std::exchange(is_complete_, false);
  if (completed) {
    complete_ = iteration_;
    actions_.emplace_back(EndIteration{iteration_++, absl::OkStatus()});
  }
  const absl::Status meanwhile = std::exchange(meanwhile_, absl::OkStatus());
  const bool is_last = completed && iteration_ == options_.iterations;
  if (is_last || (completed && stop_reason_.has_value())) {
    StopAll("");
  } else if (stop_reason_.has_value()) {
    GiveUp(Stopped());
  } else if (!meanwhile.ok()) {
    GiveUp(meanwhile);
  } else {
    BeginNext();
  }
  actions_.emplace_back(Publish{});
}

void PipelineMachine::BeginNext() {
  phase_ = Phase::kIterating;
  state_ = PipelineRunState::kRunning;
  // All are there: the next failure gives them their whole time to return.
  awaits_workers_ = too_late_ = false;
  for (auto& [name, worker] : workers_) worker.reported = false;
  actions_.emplace_back(BeginIteration{iteration_});
  actions_.emplace_back(StartTimer{Wait::kIteration});
}

void PipelineMachine::On(const Reported& event) {
  Worker* worker = FindOpen(event.worker);
  if (worker == nullptr) return;
  // Those of programs that are being stopped come as well: they say where the iteration hung.
  if (!event.positions.empty()) worker->positions = event.positions;
  if (phase_ == Phase::kEnding) return;
  if (!event.status.ok()) return Fail(AboutWorker(event.worker, event.status));
  if (phase_ != Phase::kIterating || event.iteration != iteration_) return;
  worker->reported = true;
  if (std::ranges::all_of(workers_, [](const auto& entry) { return entry.second.reported; })) {
    is_complete_ = true;
    Record();
  }
}

void PipelineMachine::On(const CallEnded& event) {
  Worker* worker = FindOpen(event.worker);
  if (worker == nullptr) return;
  worker->ended = true;
  if (phase_ == Phase::kEnding) return;
  const absl::Status why = AboutWorker(event.worker, EndOf(event.status));
  // A program that a worker refuses it would refuse again; one that did not reach it, perhaps not.
  if (!worker->accepted && !absl::IsUnavailable(why)) refusal_ = why;
  Fail(why);
}

void PipelineMachine::On(const WorkerGone& event) {
  if (FindOpen(event.worker) == nullptr) return;
  Fail(AboutWorker(event.worker, event.status));
  // No worker is left that could end its call.
  actions_.emplace_back(CancelCall{event.worker});
}

void PipelineMachine::On(const TimePassed& event) {
  switch (event.wait) {
    case Wait::kWorkers:
      return OnWorkersTooLate();
    case Wait::kStart:
      if (phase_ != Phase::kStarting) return;
      return Fail(absl::DeadlineExceededError(
          absl::StrCat("the program was not accepted in time by ", Lacking(&Worker::accepted))));
    case Wait::kIteration:
      if (phase_ != Phase::kIterating) return;
      return Fail(absl::DeadlineExceededError(
          absl::StrCat("its deadline passed without word of ", Lacking(&Worker::reported))));
    case Wait::kEnd:
      if (phase_ != Phase::kEnding) return;
      for (const auto& [name, worker] : workers_) {
        if (!worker.ended) actions_.emplace_back(CancelCall{name});
      }
      return;
  }
}

void PipelineMachine::On(const StopRequested& event) {
  if (!stop_reason_.has_value()) stop_reason_ = event.reason;
  switch (phase_) {
    case Phase::kAwaiting:
      return End(PipelineRunState::kStopped, Stopped());
    case Phase::kStarting:
      return Fail(Stopped());
    case Phase::kIterating:
      if (event.now) Fail(Stopped());
      return;
    case Phase::kRecording:
    case Phase::kEnding:
      return;
  }
}

void PipelineMachine::Fail(const absl::Status& cause) {
  if (phase_ == Phase::kEnding) return;
  if (phase_ == Phase::kRecording) return meanwhile_.Update(cause);
  GiveUp(cause);
}

void PipelineMachine::GiveUp(const absl::Status& cause) {
  tried_ = phase_ == Phase::kIterating;
  cause_ = cause;
  StopAll(std::string(cause.message()));
}

void PipelineMachine::StopAll(const std::string& reason) {
  phase_ = Phase::kEnding;
  actions_.emplace_back(StopPrograms{reason});
  actions_.emplace_back(StartTimer{Wait::kEnd});
}

void PipelineMachine::Settle() {
  if (phase_ != Phase::kEnding || !all_ended()) return;
  const bool tried = std::exchange(tried_, false);
  if (tried) {
    FailIteration(WithPositions());
  } else {
    missing_ = cause_;
  }
  if (cause_.ok() && iteration_ == options_.iterations) {
    return End(PipelineRunState::kDone, absl::OkStatus());
  }
  // What a client asked for decides before what failed meanwhile.
  if (stop_reason_.has_value()) return End(PipelineRunState::kStopped, Stopped());
  if (!refusal_.ok()) return End(PipelineRunState::kFailed, refusal_);
  if (tried && EndsAtFailure()) return End(PipelineRunState::kFailed, failure_);
  if (too_late_) return End(PipelineRunState::kFailed, NotThereInTime());
  WaitForWorkers();
}

void PipelineMachine::FailIteration(const absl::Status& why) {
  actions_.emplace_back(EndIteration{iteration_, why});
  failure_ = At(absl::StrCat("iteration ", iteration_), why);
  ++iteration_;
}

bool PipelineMachine::EndsAtFailure() const {
  return options_.stop_at_failure || iteration_ == options_.iterations;
}

absl::Status PipelineMachine::Stopped() const {
  return absl::CancelledError(absl::StrCat("stopped: ", *stop_reason_));
}

void PipelineMachine::WaitForWorkers() {
  phase_ = Phase::kAwaiting;
  workers_.clear();
  cause_ = absl::OkStatus();
  if (iteration_ > 0) state_ = PipelineRunState::kWaiting;
  actions_.emplace_back(AwaitWorkers{});
  // A start that fails does not give more time.
  if (!std::exchange(awaits_workers_, true)) actions_.emplace_back(StartTimer{Wait::kWorkers});
  actions_.emplace_back(Publish{});
}

void PipelineMachine::OnWorkersTooLate() {
  if (!awaits_workers_) return;
  // A start that is under way may still succeed.
  too_late_ = true;
  if (phase_ == Phase::kAwaiting) End(PipelineRunState::kFailed, NotThereInTime());
}

absl::Status PipelineMachine::NotThereInTime() const {
  std::string text = "the workers were not all there in time";
  for (const absl::Status& why : {missing_, failure_}) {
    if (!why.ok()) absl::StrAppend(&text, "; ", why.message());
  }
  return absl::DeadlineExceededError(text);
}

absl::Status PipelineMachine::WithPositions() const {
  std::vector<std::string> told;
  for (const auto& [name, worker] : workers_) {
    told.insert(told.end(), worker.positions.begin(), worker.positions.end());
  }
  const size_t shown = std::min<size_t>(told.size(), kPositionsMax);
  std::string text(cause_.message());
  for (size_t i = 0; i < shown; ++i) absl::StrAppend(&text, "; ", told[i]);
  if (shown < told.size()) absl::StrAppend(&text, "; and ", told.size() - shown, " more");
  return absl::Status(cause_.code(), text);
}

std::string PipelineMachine::Lacking(bool Worker::* has) const {
  std::vector<absl::string_view> lacking;
  for (const auto& [name, worker] : workers_) {
    if (!(worker.*has)) lacking.push_back(name);
  }
  return absl::StrJoin(lacking, ", ");
}

void PipelineMachine::End(PipelineRunState state, absl::Status error) {
  state_ = state;
  error_ = std::move(error);
  actions_.emplace_back(Finish{});
}

}  // namespace crossmesh
