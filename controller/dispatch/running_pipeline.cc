#include "controller/dispatch/running_pipeline.h"

#include "common/base/check.h"
#include "common/base/log.h"
#include "common/mesh/mesh.h"
#include "common/wire/status_code.h"
#include "common/wire/time_codec.h"
#include "controller/dispatch/default_deadline.h"
#include "controller/dispatch/runnable_plan.h"

#include <iterator>
#include <utility>

namespace crossmesh {
namespace {

v1::PipelineRunState ToProto(PipelineRunState state) {
  // In the order of PipelineRunState.
  constexpr v1::PipelineRunState kValues[] = {
      v1::PIPELINE_RUN_STATE_PREPARING, v1::PIPELINE_RUN_STATE_RUNNING,
      v1::PIPELINE_RUN_STATE_WAITING,   v1::PIPELINE_RUN_STATE_DONE,
      v1::PIPELINE_RUN_STATE_FAILED,    v1::PIPELINE_RUN_STATE_STOPPED};
  static_assert(std::size(kValues) == static_cast<size_t>(PipelineRunState::kStopped) + 1);
  return kValues[static_cast<size_t>(state)];
}

double MedianSeconds(const v1::PipelineRun& run) {
  std::vector<double> seconds;
  for (const v1::PipelineIteration& iteration : run.done()) {
    if (iteration.error_code() == 0) seconds.push_back(iteration.seconds());
  }
  return Median(std::move(seconds));
}

v1::RunProgramRequest StopOf(const std::string& reason) {
  v1::RunProgramRequest request;
  request.mutable_stop()->set_reason(reason);
  return request;
}

}  // namespace

RunningPipeline::RunningPipeline(const Environment& environment, PipelineRequest request,
                                 absl::AnyInvocable<void()> on_finished)
    : environment_(environment),
      request_(std::move(request)),
      on_finished_(std::move(on_finished)),
      machine_(
          {.iterations = request_.shown.iterations(), .stop_at_failure = request_.stop_at_failure}),
      run_(request_.shown) {}

void RunningPipeline::Stop(bool now, const std::string& reason) {
  is_wanted_ = false;
  Feed(Machine::StopRequested{now, reason});
}

void RunningPipeline::WorkerIsLost(const std::string& worker, const absl::Status& why) {
  Feed(Machine::WorkerGone{worker, why});
}

void RunningPipeline::Call(const WorkerRecord& worker, const v1::RunProgramRequest::Start& start) {
  WorkerCallStart<v1::RunProgramRequest> call;
  call.address = worker.execution_address;
  *call.start.mutable_start() = start;
  call.body = [bytes = programs_.at(worker.name).bytes] { return *bytes; };
  const auto is_current = [this, self = shared_from_this(), generation = generation_] {
    return generation_ == generation;
  };
  calls_[worker.name] = environment_.gateway.Open(
      std::move(call),
      OnQueue<v1::RunProgramResponse>(
          environment_.queue, is_current,
          {.on_message =
               [this, name = worker.name](v1::RunProgramResponse response) {
                 OnMessage(name, std::move(response));
               },
           .on_end = [this, name = worker.name](
                         const absl::Status& status) { OnCallEnded(name, status); }}));
}

void RunningPipeline::OnMessage(const std::string& worker, v1::RunProgramResponse response) {
  switch (response.message_case()) {
    case v1::RunProgramResponse::kAccepted:
      return Feed(Machine::Accepted{worker});
    case v1::RunProgramResponse::kIterationReport:
      return OnReport(worker, std::move(*response.mutable_iteration_report()));
    case v1::RunProgramResponse::MESSAGE_NOT_SET:
      return;
  }
}

void RunningPipeline::OnReport(const std::string& worker,
                               v1::RunProgramResponse::IterationReport report) {
  Machine::Reported event{.worker = worker,
                          .iteration = report.iteration(),
                          .status = StatusFromCode(report.code(), report.message()),
                          .positions = {report.positions().begin(), report.positions().end()}};
  if (event.status.ok()) reports_[worker] = {programs_.at(worker).transfers, std::move(report)};
  Feed(event);
}

void RunningPipeline::OnCallEnded(const std::string& worker, const absl::Status& status) {
  calls_.erase(worker);
  Feed(Machine::CallEnded{worker, status});
}

void RunningPipeline::Leave(const std::string& reason) {
  leaves_ = is_wanted_;
  Feed(Machine::StopRequested{.now = true, .reason = reason});
}

void RunningPipeline::Feed(const Machine::Event& event) {
  if (finished_) return;
  const std::shared_ptr<RunningPipeline> keep = shared_from_this();  // past on_finished_
  for (const Machine::Action& action : machine_.Handle(event)) {
    std::visit([this](const auto& a) { Do(a); }, action);
  }
}

v1::RunProgramRequest::Start RunningPipeline::StartOfGeneration() const {
  v1::RunProgramRequest::Start start;
  start.set_run_id(run_.id());
  // Another number at each start, so that messages which workers sent for the one before are known
  // as such.
  start.set_operation(environment_.numbers.Next());
  start.set_epoch(environment_.epoch);
  start.set_token(environment_.new_token());
  start.set_pipeline(run_.pipeline());
  start.set_layers(planned_->has_layers());
  for (const WorkerRecord& worker : workers_) {
    v1::RunProgramRequest::Peer& peer = *start.add_peers();
    peer.set_worker(worker.name);
    peer.set_data_address(worker.data_address);
    peer.set_devices(DevicesToString(devices_.at(worker.name)));
    peer.set_incarnation(worker.incarnation);
  }
  start.set_checksums(request_.checksums);
  start.set_rehearsal(run_.rehearsal());
  *start.mutable_stall_limit() = crossmesh::ToProto(request_.stall_limit);
  if (complete_iteration_.has_value()) start.set_complete_iteration(*complete_iteration_);
  *start.mutable_lost_ranks() = run_.lost_ranks();
  return start;
}

void RunningPipeline::Do(const Machine::StartPrograms& action) {
  generation_ = action.generation;  // first: calls of earlier ones are not heard from now on
  FindProcesses();
  const v1::RunProgramRequest::Start start = StartOfGeneration();
  for (const WorkerRecord& worker : workers_) Call(worker, start);
}

void RunningPipeline::Do(const Machine::BeginIteration& action) {
  // All processes have said that they go on together. Before that what was lost stays lost, also
  // when the start fails and some had answered.
  if (!starting_.empty()) computed_ = std::exchange(starting_, {});
  run_.clear_lost_ranks();
  reports_.clear();
  v1::RunProgramRequest begin;
  begin.mutable_begin_iteration()->set_iteration(action.iteration);
  for (const auto& [worker, call] : calls_) call->Send(begin);
}

void RunningPipeline::Do(const Machine::StopPrograms& action) {
  for (const auto& [worker, call] : calls_) call->SendLast(StopOf(action.reason));
}

void RunningPipeline::Do(const Machine::CancelCall& action) {
  const auto found = calls_.find(action.worker);
  if (found != calls_.end()) found->second->Cancel();
}

void RunningPipeline::Do(const Machine::AwaitWorkers& /*action*/) {
  environment_.queue.Cancel(look_timer_);
  look_timer_ = environment_.queue.PostAfter(kLookPause, [weak = weak_from_this()] {
    const std::shared_ptr<RunningPipeline> self = weak.lock();
    if (self != nullptr && !self->finished_) self->LookForWorkers();
  });
}

absl::Duration RunningPipeline::TimeFor(Machine::Wait wait) const {
  switch (wait) {
    case Machine::Wait::kWorkers:
      return request_.rejoin_limit;
    case Machine::Wait::kStart:
      return run_.lost_ranks().empty() ? kAcceptLimit : kRestoreLimit;
    case Machine::Wait::kIteration:
      return request_.iteration_deadline.value_or(DefaultDeadline(planned_->seconds()));
    case Machine::Wait::kEnd:
      return kEndingGrace;
  }
  return absl::ZeroDuration();
}

void RunningPipeline::Do(const Machine::StartTimer& action) {
  TaskQueue::Timer& timer = timers_[static_cast<size_t>(action.wait)];
  environment_.queue.Cancel(timer);
  timer = environment_.queue.PostAfter(TimeFor(action.wait),
                                       [weak = weak_from_this(), wait = action.wait] {
                                         if (const auto self = weak.lock())
                                           self->Feed(Machine::TimePassed{wait});
                                       });
}

void RunningPipeline::Do(const Machine::EndIteration& action) {
  v1::PipelineIteration& ended = *run_.add_done();
  ended.set_index(action.iteration);
  if (action.status.ok()) {
    complete_ = std::move(completed_);
    complete_iteration_ = action.iteration;
    ended.set_seconds(IterationSeconds(complete_));
  } else {
    ended.set_error(std::string(action.status.message()));
    ended.set_error_code(static_cast<int32_t>(action.status.code()));
    run_.set_failed_iterations(run_.failed_iterations() + 1);
    LogWarning("pipeline_iteration_failed", {{"run_id", run_.id()},
                                             {"iteration", action.iteration},
                                             {"error", action.status.message()}});
  }
  const int told = run_.done_size();
  if (told > kIterationsTold) run_.mutable_done()->DeleteSubrange(0, told - kIterationsTold);
}

void RunningPipeline::Do(const Machine::Publish& /*action*/) { PublishSoon(); }

void RunningPipeline::Do(const Machine::Finish& /*action*/) {
  finished_ = true;
  given_up_->store(true);  // a planner may still be at it
  for (const TaskQueue::Timer& timer : timers_) environment_.queue.Cancel(timer);
  environment_.queue.Cancel(look_timer_);
  environment_.queue.Cancel(publish_timer_);
  CHECK(calls_.empty());
  run_.set_error(std::string(machine_.error().message()));
  run_.set_error_code(static_cast<int32_t>(machine_.error().code()));
  *run_.mutable_end_time() = crossmesh::ToProto(environment_.clock.Now());
  LogInfo("pipeline_run_ended", {{"run_id", run_.id()},
                                 {"state", v1::PipelineRunState_Name(ToProto(machine_.state()))},
                                 {"failed_iterations", run_.failed_iterations()},
                                 {"median_seconds", MedianSeconds(run_)},
                                 {"error", run_.error()}});
  // What is on record is all that the next controller needs.
  if (leaves_ && is_recorded_ && machine_.state() == PipelineRunState::kStopped) {
    return on_finished_();
  }
  environment_.sink.Finish(Shown(), [self = shared_from_this()](const absl::Status& /*status*/) {
    self->on_finished_();
  });
}

void RunningPipeline::PublishSoon() {
  // Iterations may be short, and every message of a run carries the last measurement.
  const absl::Duration since = environment_.clock.Monotonic() - published_;
  if (machine_.state() != published_state_ || since >= kPublishInterval) return Publish();
  if (publish_timer_.number != 0) return;
  publish_timer_ =
      environment_.queue.PostAfter(kPublishInterval - since, [weak = weak_from_this()] {
        const std::shared_ptr<RunningPipeline> self = weak.lock();
        if (self != nullptr && !self->finished_) self->Publish();
      });
}

void RunningPipeline::Publish() {
  environment_.queue.Cancel(publish_timer_);
  publish_timer_ = {};
  published_ = environment_.clock.Monotonic();
  published_state_ = machine_.state();
  environment_.sink.OnChange(Shown());
}

std::shared_ptr<const v1::PipelineRun> RunningPipeline::Shown() {
  run_.set_revision(run_.revision() + 1);
  auto run = std::make_shared<v1::PipelineRun>(run_);
  run->set_state(ToProto(machine_.state()));
  run->set_median_seconds(MedianSeconds(*run));
  if (!complete_.empty()) *run->mutable_measurement() = planned_->Measure(complete_);
  return run;
}

}  // namespace crossmesh
