#include "controller/dispatch/running_operation.h"

#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/metrics/controller_metrics.h"
#include "common/wire/time_codec.h"
#include "controller/dispatch/communicator_leases.h"
#include "controller/dispatch/default_deadline.h"
#include "controller/dispatch/operation_attempt.h"
#include "controller/dispatch/operation_message.h"
#include "controller/dispatch/operation_plan.h"
#include "controller/dispatch/operation_resumption.h"
#include "controller/dispatch/operation_times.h"
#include "controller/dispatch/planned_reshard.h"
#include "controller/dispatch/remainder.h"
#include "controller/dispatch/start_gate.h"
#include "controller/dispatch/task_connection.h"
#include "controller/membership/worker_registry.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <set>

#include <absl/strings/str_cat.h>

namespace crossmesh {

RunningOperation::RunningOperation(const Environment& environment, OperationRequest request,
                                   absl::AnyInvocable<void()> on_finished)
    : environment_(environment),
      request_(std::move(request)),
      on_finished_(std::move(on_finished)),
      shown_(request_.shown),
      times_(std::make_unique<OperationTimes>(environment.clock)) {}

RunningOperation::~RunningOperation() = default;

OperationState RunningOperation::state() const {
  return machine_.has_value() ? machine_->state() : OperationState::kPreparing;
}

void RunningOperation::Begin() {
  if (request_.resumption.has_value()) return TakeUp();
  if (request_.deadline.has_value()) StartDeadline(*request_.deadline);
  if (request_.planned != nullptr) {
    accepted_ = true;  // by the intent, which follows at once
    return OnPlanned(request_.planned);
  }
  // Planning takes time, in which clients know of the operation: so must the next controller.
  Commit("", &RunningOperation::OnAccepted);
  AtPlanner(request_.plan_cost, std::move(request_.plan), &RunningOperation::OnPlanned);
}

void RunningOperation::Commit(std::string resumption,
                              void (RunningOperation::*next)(const absl::Status&)) {
  environment_.sink.Commit(
      std::make_shared<const v1::Operation>(shown_), std::move(resumption),
      [weak = weak_from_this(), next, &queue = environment_.queue](const absl::Status& status) {
        // Also when it is called at once: the machine may be in the middle of its actions.
        queue.Post([weak, next, status] {
          const std::shared_ptr<RunningOperation> self = weak.lock();
          if (self != nullptr && !self->finished_) ((*self).*next)(status);
        });
      });
}

void RunningOperation::OnAccepted(const absl::Status& status) {
  accepted_ = true;
  if (!status.ok()) early_plan_ = status;
  if (early_plan_.has_value()) OnPlanned(*std::exchange(early_plan_, std::nullopt));
}

template <typename Result>
void RunningOperation::AtPlanner(int64_t cost, Work<Result> work,
                                 void (RunningOperation::*next)(Result)) {
  const auto done = [self = shared_from_this(), next](Result result) {
    self->environment_.queue.Post(
        [self, next, result = std::move(result)]() mutable { ((*self).*next)(std::move(result)); });
  };
  environment_.planners.Post(
      {.client = request_.client,
       .cost = cost,
       .work = [done, work = std::move(work)](const absl::Status& turn) mutable {
         turn.ok() ? work(done) : done(turn);
       }});
}

void RunningOperation::OnPlanned(OperationRequest::Planned planned) {
  if (finished_) return;
  if (!accepted_) {
    early_plan_ = std::move(planned);
    return;
  }
  if (!machine_.has_value()) {
    machine_.emplace(planned.ok() ? (*planned)->tensors().replicas() : 0);
  }
  if (!planned.ok()) return FailPlanning(planned.status());
  if (attempts_.empty()) {
    OperationAttempt& first = AddAttempt();
    first.replica_numbers.resize((*planned)->tensors().replicas());
    std::iota(first.replica_numbers.begin(), first.replica_numbers.end(), 0);
    plan_ = std::make_shared<const OperationPlan>(OperationPlan::Of(**planned));
  }
  attempts_.back().planned = *std::move(planned);
  AssignWorkers();
}

void RunningOperation::AssignWorkers() {
  OperationAttempt& attempt = attempts_.back();
  const PlannedReshard& planned = *attempt.planned;
  if (deadline_ == absl::ZeroDuration()) {
    StartDeadline(DefaultDeadline(planned.plan().figures().predicted_seconds));
  }
  absl::StatusOr<std::vector<WorkerRecord>> owners =
      environment_.workers.OwnersOf(planned.tensors().devices());
  if (absl::IsUnavailable(owners.status())) return AwaitWorkers();
  if (!owners.ok()) {
    // A worker that went while its GPU's process was awaited is not the cause, but what came of it.
    const absl::Status& obstacle = attempt.communicators->obstacle();
    return FailPlanning(obstacle.ok() ? owners.status() : obstacle);
  }
  const absl::Status assigned = attempt.SetWorkers(*std::move(owners));
  if (!assigned.ok()) return FailPlanning(assigned);
  if (auto parts = planned.FindParts(attempt.devices)) return OnParts(std::move(parts));
  AtPlanner<Parts>(
      std::ssize(planned.plan().relays()) + std::ssize(planned.plan().hops()),
      [shared = attempt.planned, devices = attempt.devices](auto done) {
        done(shared->Cut(devices));
      },
      &RunningOperation::OnParts);
}

void RunningOperation::AwaitWorkers() {
  look_timer_ = environment_.queue.PostAfter(kLookPause, [weak = weak_from_this()] {
    const std::shared_ptr<RunningOperation> self = weak.lock();
    if (self != nullptr && !self->finished_) self->AssignWorkers();
  });
}

void RunningOperation::OnParts(Parts parts) {
  if (finished_) return;
  if (!parts.ok()) return FailPlanning(parts.status());
  attempts_.back().parts = *std::move(parts);
  GetCommunicators();
}

TaskConnection& RunningOperation::Task(const std::string& worker, uint32_t attempt) {
  return attempts_[attempt - 1].Task(worker);
}

OperationAttempt& RunningOperation::AddAttempt() {
  const auto number = static_cast<uint32_t>(attempts_.size() + 1);
  return attempts_.emplace_back(
      OperationAttempt{.number = number,
                       .communicators = std::make_shared<AttemptCommunicators>(
                           AttemptCommunicators::Options{.leases = environment_.communicators,
                                                         .queue = environment_.queue,
                                                         .clock = environment_.clock,
                                                         .epoch = environment_.epoch,
                                                         .operation = shown_.id(),
                                                         .attempt = number})});
}

void RunningOperation::GetCommunicators() {
  const OperationAttempt& attempt = attempts_.back();
  const auto with_self = [weak = weak_from_this(), number = attempts_.size()](auto action) {
    const std::shared_ptr<RunningOperation> self = weak.lock();
    // What comes for an attempt that is over, by a deadline or a cancellation, counts no more.
    if (self != nullptr && !self->finished_ && self->attempts_.size() == number) action(*self);
  };
  attempt.communicators->Get(
      *attempt.planned, attempt.workers,
      {.done =
           [with_self](const absl::Status& status) {
             with_self([&](RunningOperation& self) {
               status.ok() ? self.PassGate() : self.FailPlanning(status);
             });
           },
       .again = [with_self] { with_self([](RunningOperation& self) { self.AssignWorkers(); }); }});
}

void RunningOperation::PassGate() {
  environment_.gate.WhenOpen([weak = weak_from_this(), number = attempts_.size()] {
    const std::shared_ptr<RunningOperation> self = weak.lock();
    if (self != nullptr && !self->finished_ && self->attempts_.size() == number) self->StartTasks();
  });
}

void RunningOperation::StartTasks() {
  OperationAttempt& attempt = attempts_.back();
  std::vector<WorkerShare> shares = attempt.MakeShares();
  v1::ExecuteRequest::Start common = request_.start;
  common.set_epoch(environment_.epoch);
  *common.mutable_deadline() = crossmesh::ToProto(TimeLeft());
  attempt.start = attempt.MakeStart(common, shares);
  Feed(Planned{std::move(shares)});
}

void RunningOperation::Cancel(const std::string& reason) {
  if (finished_) return;
  // Without a plan there are no replicas, so the machine ends at once.
  if (!machine_.has_value()) machine_.emplace(0);
  SetTimer(kEndingGrace);
  Feed(CancelRequested{reason});
}

void RunningOperation::WorkerIsLost(const std::string& worker, const absl::Status& why) {
  // Before the first plan no worker takes part; then AssignWorkers sees which ones are there.
  if (machine_.has_value()) Feed(WorkerLost{worker, why});
}

void RunningOperation::Progress(const std::string& worker, uint32_t attempt, int64_t moved_bytes) {
  if (finished_ || attempt < 1 || attempt > attempts_.size()) return;
  OperationAttempt& told = attempts_[attempt - 1];
  if (!told.tasks.contains(worker)) return;
  int64_t& known = told.moved_bytes[worker];
  if (moved_bytes <= known) return;
  known = moved_bytes;
  if (progress_timer_.number != 0) return;
  progress_timer_ = environment_.queue.PostAfter(kProgressInterval, [weak = weak_from_this()] {
    const std::shared_ptr<RunningOperation> self = weak.lock();
    if (self == nullptr || self->finished_) return;
    self->progress_timer_ = {};
    self->Publish();
  });
}

void RunningOperation::Hear(uint32_t attempt, const OperationEvent& event) {
  if (const auto* ended = std::get_if<TaskEnded>(&event)) HearEnd(attempt, *ended);
  // A broken call may repeat what belongs to an attempt that is over.
  const bool timely = attempt == attempts_.size();
  if (timely || std::holds_alternative<WorkerLost>(event)) Feed(event);
}

void RunningOperation::Feed(const OperationEvent& event) {
  if (finished_) return;
  const std::shared_ptr<RunningOperation> keep = shared_from_this();  // past on_finished_
  Observe(event);
  for (const OperationAction& action : machine_->Handle(event)) {
    std::visit([this](const auto& a) { Do(a); }, action);
  }
  OpenGate();
  if (changed_ && !finished_) Publish();
}

// Takes the times that the report is made of.
void RunningOperation::Observe(const OperationEvent& event) {
  if (const auto* accepted = std::get_if<TaskAccepted>(&event)) {
    if (attempts_.size() == 1) times_->OnAccepted(accepted->worker);
  } else if (const auto* done = std::get_if<DeviceDone>(&event)) {
    if (done->status.ok()) times_->OnVerified();
  }
}

void RunningOperation::Do(const CommitIntent& /*action*/) {
  changed_ = true;
  Show();
  const OperationAttempt& attempt = attempts_.back();
  Commit(MakeResumption(attempts_, attempt.MakeShares(), *plan_).SerializeAsString(),
         &RunningOperation::OnIntent);
}

void RunningOperation::OnIntent(const absl::Status& status) {
  if (!status.ok()) return Feed(IntentFailed{status});
  if (attempts_.size() == 1) {
    environment_.metrics.PlanUsed({.strategy = plan_->strategy,
                                   .network_bytes = plan_->report.network_bytes(),
                                   .least_network_bytes = plan_->report.least_network_bytes()});
  }
  Feed(IntentCommitted{});
}

TaskConnectionOptions RunningOperation::Connection(const std::string& worker, uint32_t attempt) {
  return {.gateway = environment_.gateway,
          .queue = environment_.queue,
          .worker = worker,
          .deadline = TimeLeft(),
          .on_event = [weak = weak_from_this(), attempt](const OperationEvent& event) {
            if (const auto self = weak.lock()) self->Hear(attempt, event);
          }};
}

void RunningOperation::Do(const StartTask& action) {
  if (request_.resumption.has_value()) return Adopt(action);
  OperationAttempt& attempt = attempts_.back();
  const size_t index = attempt.IndexOf(action.worker);
  if (attempts_.size() == 1) times_->OnStarted(action.worker);
  TaskConnectionOptions options = Connection(action.worker, action.attempt);
  options.address = attempt.workers[index].execution_address;
  options.start = attempt.start;
  options.part = attempt.PartOf(index);
  options.destinations = attempt.DestinationsOf(index);
  const auto connection = std::make_shared<TaskConnection>(std::move(options));
  attempt.tasks[action.worker] = connection;
  connection->Begin();
}

void RunningOperation::Do(const CancelTask& action) {
  Task(action.worker, action.attempt).Cancel(action.reason);
}

void RunningOperation::Do(const ResolveDevices& action) {
  Task(action.worker, action.attempt).Resolve(action.devices, action.commit);
}

void RunningOperation::Do(const TellPeerLost& action) {
  attempts_[action.attempt - 1].told_lost.insert(action.lost);
  Task(action.worker, action.attempt).PeerLost(action.lost, action.reason);
}

void RunningOperation::Do(const PlanAgain& action) {
  OperationAttempt& last = attempts_.back();
  if (last.planned == nullptr) return PlanNoMore();
  // Now, since the next attempt needs the same GPUs.
  last.ReturnCommunicators();
  Remainder remainder = last.RemainderOf(action.replicas, action.without);
  remainder.failed_links = environment_.workers.FailedHostLinks();
  const int64_t cost = remainder.first->planning_cost();
  AddAttempt().replica_numbers.assign(action.replicas.begin(), action.replicas.end());
  AtPlanner<OperationRequest::Planned>(
      cost,
      [remainder = std::move(remainder), &clock = environment_.clock](auto done) {
        done(PlanRemainder(remainder, clock));
      },
      &RunningOperation::OnPlanned);
}

void RunningOperation::Do(const CheckHope& action) {
  if (attempts_.back().planned == nullptr) return;
  AtPlanner<Hope>(
      attempts_.back().planned->planning_cost(),
      [remainder = attempts_.back().RemainderOf(action.replicas, action.without)](auto done) {
        done(FindHopeless(remainder));
      },
      &RunningOperation::OnHope);
}

void RunningOperation::OnHope(Hope hope) {
  if (hope.ok() && !hope->replicas.empty() && attempts_.size() == 1) Feed(*hope);
}

void RunningOperation::Do(const AcknowledgeTask& action) { to_acknowledge_.push_back(action); }

void RunningOperation::Do(const PublishChange& /*action*/) { changed_ = true; }

void RunningOperation::Do(const FinishOperation& /*action*/) {
  finished_ = true;
  environment_.queue.Cancel(deadline_timer_);
  environment_.queue.Cancel(progress_timer_);
  environment_.queue.Cancel(look_timer_);
  if (!attempts_.empty()) attempts_.back().ReturnCommunicators();
  *shown_.mutable_end_time() = crossmesh::ToProto(environment_.clock.Now());
  *shown_.mutable_report() = Report();
  TellLinksThatWork();
  shown_.set_revision(shown_.revision() + 1);
  Show();
  RecordEnd(shown_.report());
  environment_.sink.Finish(
      std::make_shared<const v1::Operation>(shown_),
      [self = shared_from_this()](const absl::Status& status) { self->OnRecorded(status); });
}

// Only now may workers forget their tasks: until the end is recorded, another controller may have
// to find it by them.
void RunningOperation::OnRecorded(const absl::Status& status) {
  for (const AcknowledgeTask& task : to_acknowledge_) {
    if (status.ok()) Task(task.worker, task.attempt).Acknowledge();
  }
  for (OperationAttempt& attempt : attempts_) {
    for (const auto& [worker, task] : attempt.tasks) status.ok() ? task->LetGo() : task->Leave();
  }
  hold_.reset();
  on_finished_();
}

absl::Duration RunningOperation::TimeLeft() const {
  return std::max(deadline_ - times_->elapsed(), absl::Milliseconds(1));
}

void RunningOperation::StartDeadline(absl::Duration deadline) {
  deadline_ = deadline;
  SetTimer(deadline_ - times_->elapsed());
}

void RunningOperation::SetTimer(absl::Duration delay) {
  environment_.queue.Cancel(deadline_timer_);
  deadline_timer_ = environment_.queue.PostAfter(delay, [weak = weak_from_this()] {
    const std::shared_ptr<RunningOperation> self = weak.lock();
    if (self == nullptr || self->finished_) return;
    if (!self->machine_.has_value()) self->machine_.emplace(0);
    self->SetTimer(kEndingGrace);
    // The machine knows of no communicators, and could not say what was waited for.
    const bool waits = !self->attempts_.empty() && self->attempts_.back().communicators->waiting();
    if (waits) return self->FailPlanning(self->attempts_.back().communicators->TooLate());
    self->Feed(DeadlinePassed{});
  });
}

}  // namespace crossmesh
