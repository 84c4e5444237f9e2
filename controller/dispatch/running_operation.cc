#include "controller/dispatch/running_operation.h"

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "controller/dispatch/remaining_tensors.h"

#include <algorithm>
#include <numeric>

namespace crossmesh {
namespace {

constexpr absl::Duration kDeadlineBase = absl::Seconds(30);
constexpr int kDeadlinePredictions = 3;

// Which of the plan's devices each worker owns.
PlannedReshard::DevicesOfWorkers DevicesInPlan(const std::vector<WorkerRecord>& workers,
                                               const TensorTable& tensors) {
  PlannedReshard::DevicesOfWorkers devices;
  for (const WorkerRecord& worker : workers) {
    std::vector<DeviceId>& owned = devices.emplace_back();
    for (const DeviceId& device : worker.devices) {
      if (tensors.FindDevice(device).has_value()) owned.push_back(device);
    }
  }
  return devices;
}

bool MovesBytes(const WorkerPart& part) {
  return !part.spec().relays.empty() || !part.spec().copies.empty();
}

// What of `first` is still to be moved.
struct Remainder {
  std::shared_ptr<const PlannedReshard> first;
  std::set<int32_t> replicas;
  std::set<DeviceId> lost;
};

OperationRequest::Planned PlanRemainder(const Remainder& remainder, const Clock& clock) {
  const PlannedReshard& first = *remainder.first;
  ASSIGN_OR_RETURN(TensorTable tensors,
                   RemainingTensors(first.tensors(), remainder.replicas, remainder.lost));
  ReshardRequest request = first.request();
  request.tensors = std::make_shared<const TensorTable>(std::move(tensors));
  return PlannedReshard::Create(std::move(request), first.limits(), clock);
}

}  // namespace

RunningOperation::RunningOperation(const Environment& environment, OperationRequest request,
                                   absl::AnyInvocable<void()> on_finished)
    : environment_(environment),
      request_(std::move(request)),
      on_finished_(std::move(on_finished)),
      begin_(environment.clock.Monotonic()),
      create_time_(environment.clock.Now()) {}

OperationState RunningOperation::state() const {
  return machine_.has_value() ? machine_->state() : OperationState::kPreparing;
}

void RunningOperation::Begin() {
  if (request_.deadline.has_value()) StartDeadline(*request_.deadline);
  if (request_.planned != nullptr) {
    OnPlanned(request_.planned);
  } else {
    AtPlanner(std::move(request_.plan));
  }
}

void RunningOperation::AtPlanner(absl::AnyInvocable<OperationRequest::Planned()> plan) {
  const bool taken =
      environment_.planners.Post([self = shared_from_this(), plan = std::move(plan)]() mutable {
        self->environment_.queue.Post(
            [self, planned = plan()]() mutable { self->OnPlanned(std::move(planned)); });
      });
  if (!taken) OnPlanned(absl::ResourceExhaustedError("too many requests wait for the planner"));
}

void RunningOperation::OnPlanned(OperationRequest::Planned planned) {
  if (finished_) return;
  if (!machine_.has_value()) {
    machine_.emplace(planned.ok() ? (*planned)->tensors().replicas() : 0);
  }
  if (!planned.ok()) return FailPlanning(planned.status());
  if (attempts_.empty()) {
    Attempt& first = attempts_.emplace_back();
    first.replica_numbers.resize((*planned)->tensors().replicas());
    std::iota(first.replica_numbers.begin(), first.replica_numbers.end(), 0);
  }
  attempts_.back().planned = *std::move(planned);
  AssignWorkers();
}

void RunningOperation::AssignWorkers() {
  Attempt& attempt = attempts_.back();
  const PlannedReshard& planned = *attempt.planned;
  if (deadline_ == absl::ZeroDuration()) {
    StartDeadline(kDeadlinePredictions * absl::Seconds(planned.plan().figures().predicted_seconds) +
                  kDeadlineBase);
  }
  absl::StatusOr<std::vector<WorkerRecord>> owners =
      environment_.workers.OwnersOf(planned.tensors().devices());
  if (!owners.ok()) {
    return FailPlanning(attempt.obstacle.ok() ? owners.status() : attempt.obstacle);
  }
  attempt.workers = *std::move(owners);
  attempt.devices = DevicesInPlan(attempt.workers, planned.tensors());
  if (auto parts = planned.FindParts(attempt.devices)) return OnParts(std::move(parts));
  const bool taken = environment_.planners.Post(
      [self = shared_from_this(), shared = attempt.planned, devices = attempt.devices]() mutable {
        self->environment_.queue.Post([self, parts = shared->Cut(std::move(devices))]() mutable {
          self->OnParts(std::move(parts));
        });
      });
  if (!taken) FailPlanning(absl::ResourceExhaustedError("too many requests wait for the planner"));
}

void RunningOperation::OnParts(absl::StatusOr<std::shared_ptr<const PlannedReshard::Parts>> parts) {
  if (finished_) return;
  if (!parts.ok()) return FailPlanning(parts.status());
  attempts_.back().parts = *std::move(parts);
  GetCommunicators();
}

// Those who move bytes, and those whose storage changes hands at commit.
std::vector<WorkerShare> RunningOperation::Shares() {
  Attempt& attempt = attempts_.back();
  const TensorTable& tensors = attempt.planned->tensors();
  std::vector<WorkerShare> shares;
  std::vector<TaskStart::Peer> peers;
  for (size_t i = 0; i < attempt.workers.size(); ++i) {
    const WorkerPart& part = (*attempt.parts)[i];
    WorkerShare share{.worker = attempt.workers[i].name};
    for (const DeviceRank device : part.spec().devices) {
      const int32_t replica = tensors.replica_of(device);
      if (replica >= 0) share.replica_of_device[device] = attempt.replica_numbers[replica];
    }
    if (!MovesBytes(part) && share.replica_of_device.empty()) continue;
    peers.push_back({share.worker, attempt.workers[i].data_address, part.spec().devices});
    shares.push_back(std::move(share));
  }
  attempt.peers = std::make_shared<const std::vector<TaskStart::Peer>>(std::move(peers));
  return shares;
}

void RunningOperation::Cancel(const std::string& reason) {
  if (finished_) return;
  if (!machine_.has_value()) machine_.emplace(0);
  SetTimer(kEndingGrace);
  Feed(CancelRequested{reason});
}

void RunningOperation::WorkerIsLost(const std::string& worker, const absl::Status& why) {
  if (machine_.has_value()) Feed(WorkerLost{worker, why});
}

void RunningOperation::Progress(const std::string& worker, uint32_t attempt, int64_t moved_bytes) {
  if (finished_ || attempt < 1 || attempt > attempts_.size()) return;
  Attempt& told = attempts_[attempt - 1];
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
  if (const auto* ended = std::get_if<TaskEnded>(&event)) TellBroken(attempt, *ended);
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
  if (changed_ && !finished_) Publish();
}

// Takes the times that the report is made of.
void RunningOperation::Observe(const OperationEvent& event) {
  const absl::Duration now = environment_.clock.Monotonic();
  if (const auto* accepted = std::get_if<TaskAccepted>(&event)) {
    Attempt& attempt = attempts_.back();
    const auto started = attempt.started.extract(accepted->worker);
    if (started.empty() || attempts_.size() > 1) return;
    accepted_ = now;
    acceptance_times_.push_back(now - started.mapped());
  } else if (const auto* done = std::get_if<DeviceDone>(&event)) {
    if (done->status.ok()) verified_ = now;
  }
}

TaskConnection& RunningOperation::Task(const std::string& worker, uint32_t attempt) {
  const auto& tasks = attempts_[attempt - 1].tasks;
  const auto found = tasks.find(worker);
  CHECK(found != tasks.end()) << "worker " << worker << " has no task in attempt " << attempt;
  return *found->second;
}

void RunningOperation::Do(const CommitIntent& /*action*/) {
  changed_ = true;
  environment_.sink.CommitIntent(Snapshot(), [weak = weak_from_this(), &queue = environment_.queue](
                                                 const absl::Status& status) {
    queue.Post([weak, status] {
      const std::shared_ptr<RunningOperation> self = weak.lock();
      if (self == nullptr) return;
      self->Feed(status.ok() ? OperationEvent(IntentCommitted{})
                             : OperationEvent(IntentFailed{status}));
    });
  });
}

TaskStart RunningOperation::StartOf(size_t worker) const {
  const Attempt& attempt = attempts_.back();
  return TaskStart{
      .operation_id = request_.id,
      .operation = request_.number,
      .epoch = environment_.epoch,
      .attempt = static_cast<uint32_t>(attempts_.size()),
      .token_high = request_.token_high,
      .token_low = request_.token_low,
      // The parts live as long as the start that points into them.
      .part = std::shared_ptr<const WorkerPart>(attempt.parts, &(*attempt.parts)[worker]),
      .source_storage = request_.source_storage,
      .destination_storage = request_.destination_storage,
      .create_destination = request_.create_destination,
      .checksums = request_.checksums,
      .peers = attempt.peers,
      .communicators = attempt.communicators,
      .deadline =
          std::max(begin_ + deadline_ - environment_.clock.Monotonic(), absl::Milliseconds(1)),
      .stall_limit = request_.stall_limit,
  };
}

void RunningOperation::Do(const StartTask& action) {
  Attempt& attempt = attempts_.back();
  const auto found = std::find_if(attempt.workers.begin(), attempt.workers.end(),
                                  [&](const WorkerRecord& w) { return w.name == action.worker; });
  const auto index = static_cast<size_t>(found - attempt.workers.begin());
  const TensorTable& tensors = attempt.planned->tensors();
  std::vector<DeviceRank> destinations;
  for (const DeviceRank device : (*attempt.parts)[index].spec().devices) {
    if (tensors.replica_of(device) >= 0) destinations.push_back(device);
  }
  const absl::Duration now = environment_.clock.Monotonic();
  if (dispatched_ == absl::ZeroDuration()) dispatched_ = now;
  attempt.started[action.worker] = now;
  const auto connection = std::make_shared<TaskConnection>(TaskConnection::Options{
      .gateway = environment_.gateway,
      .queue = environment_.queue,
      .worker = action.worker,
      .address = found->execution_address,
      .start = StartOf(index),
      .destinations = std::move(destinations),
      .on_event =
          [weak = weak_from_this(), number = action.attempt](const OperationEvent& event) {
            if (const auto self = weak.lock()) self->Hear(number, event);
          },
  });
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
  Task(action.worker, action.attempt).PeerLost(action.lost, action.reason);
}

void RunningOperation::Do(const PlanAgain& action) {
  ReturnCommunicators(attempts_.size());
  const Attempt& last = attempts_.back();
  Remainder remainder{.first = last.planned, .replicas = action.replicas};
  for (size_t i = 0; i < last.workers.size(); ++i) {
    if (!action.without.contains(last.workers[i].name)) continue;
    remainder.lost.insert(last.devices[i].begin(), last.devices[i].end());
  }
  Attempt& next = attempts_.emplace_back();
  next.replica_numbers.assign(action.replicas.begin(), action.replicas.end());
  AtPlanner([remainder = std::move(remainder), &clock = environment_.clock] {
    return PlanRemainder(remainder, clock);
  });
}

void RunningOperation::Do(const AcknowledgeTask& action) {
  Task(action.worker, action.attempt).Acknowledge();
}

void RunningOperation::Do(const PublishChange& /*action*/) { changed_ = true; }

void RunningOperation::Do(const FinishOperation& /*action*/) {
  finished_ = true;
  environment_.queue.Cancel(deadline_timer_);
  environment_.queue.Cancel(progress_timer_);
  ReturnCommunicators(attempts_.size());
  for (Attempt& attempt : attempts_) {
    for (const auto& [worker, task] : attempt.tasks) task->LetGo();
  }
  ++revision_;
  OperationSnapshot last = Snapshot();
  last.end_time = environment_.clock.Now();
  last.report = Report();
  environment_.sink.OnFinish(last);
  on_finished_();
}

void RunningOperation::StartDeadline(absl::Duration deadline) {
  deadline_ = deadline;
  SetTimer(begin_ + deadline_ - environment_.clock.Monotonic());
}

void RunningOperation::SetTimer(absl::Duration delay) {
  environment_.queue.Cancel(deadline_timer_);
  deadline_timer_ = environment_.queue.PostAfter(delay, [weak = weak_from_this()] {
    const std::shared_ptr<RunningOperation> self = weak.lock();
    if (self == nullptr || self->finished_) return;
    if (!self->machine_.has_value()) self->machine_.emplace(0);
    self->SetTimer(kEndingGrace);
    if (self->awaits_communicators_) return self->OnCommunicatorsTooLate();
    self->Feed(DeadlinePassed{});
  });
}

}  // namespace crossmesh
