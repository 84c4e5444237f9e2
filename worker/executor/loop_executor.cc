#include "worker/executor/loop_executor.h"

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/event_loop/event_loop.h"
#include "worker/executor/stall_counter.h"
#include "worker/executor/task_check.h"

#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {

std::unique_ptr<Executor> Executor::Create(EventLoop& loop, ExecutorOptions options) {
  return std::make_unique<LoopExecutor>(loop, options);
}

LoopExecutor::LoopExecutor(EventLoop& loop, ExecutorOptions options)
    : loop_(loop), options_(options), pending_(options.pending_messages_max) {}

absl::Status LoopExecutor::Attach(Transport& transport) {
  CHECK(shared_ == nullptr) << "a transport was attached already";
  const int64_t bytes = options_.staging_bytes / 2;
  ASSIGN_OR_RETURN(StagingPool send_staging, StagingPool::Create("crossmesh:send_staging", bytes));
  ASSIGN_OR_RETURN(StagingPool receive_staging,
                   StagingPool::Create("crossmesh:receive_staging", bytes));
  transport.Lend({.bytes = send_staging.memory(), .fd = send_staging.fd()});
  shared_.reset(new ExecutorResources{
      .loop = loop_,
      .transport = transport,
      .options = options_,
      .on_peer_stalled = [this](PeerId peer, const absl::Status& why) { OnPeerStalled(peer, why); },
      .steps = StepRequests(loop_, [this] { Step(); }),
      .send_staging = std::move(send_staging),
      .receive_staging = std::move(receive_staging)});
  replays_.emplace(*shared_, peers_, pending_);
  return absl::OkStatus();
}

absl::Status LoopExecutor::Start(TaskSpec spec, TaskObserver& observer) {
  RETURN_IF_ERROR(CheckStart(spec));
  ASSIGN_OR_RETURN(const std::vector<std::optional<PeerId>> peer_ids,
                   peers_.Connect(spec, shared_->transport));
  const TaskKey key = spec.key;
  Running& running = tasks_[key];
  running.task = std::make_unique<TaskExecution>(std::move(spec), peer_ids, *shared_, observer);
  TaskExecution& task = *running.task;
  StartTimers(key);
  task.Begin();
  pending_.Take(
      key, [&](std::unique_ptr<IncomingMessage> message) { task.OnMessage(std::move(message)); });
  return absl::OkStatus();
}

absl::Status LoopExecutor::CheckStart(const TaskSpec& spec) const {
  CHECK(shared_ != nullptr) << "Start before Attach";
  if (tasks_.contains(spec.key) || pending_.IsPast(spec.key)) {
    return absl::AlreadyExistsError(absl::StrCat(spec.key.ToString(), " was started before"));
  }
  return CheckTask(spec, shared_->send_staging.bytes());
}

void LoopExecutor::StartTimers(const TaskKey& key) {
  tasks_.at(key).deadline = loop_.RunAfter(tasks_.at(key).task->spec().deadline, [this, key] {
    if (TaskExecution* task = Find(key)) task->OnDeadline();
  });
  StartStallRound(key);
}

void LoopExecutor::StartStallRound(const TaskKey& key) {
  Running& running = tasks_.at(key);
  const absl::Duration round = running.task->spec().stall_limit / StallCounter::kRoundsMax;
  running.stall_round = loop_.RunAfter(round, [this, key] {
    TaskExecution* task = Find(key);
    if (task == nullptr) return;
    task->OnStallRound();
    StartStallRound(key);
  });
}

void LoopExecutor::Cancel(const TaskKey& key, absl::Status why) {
  if (TaskExecution* task = Find(key)) task->Cancel(why);
}

void LoopExecutor::PeerLost(const TaskKey& key, absl::string_view worker, absl::Status why) {
  // The peer may only have refused this task, so the connection stays for others. When the peer
  // itself is gone, the transport says so.
  if (TaskExecution* task = Find(key)) task->GiveUpPeer(worker, why);
}

void LoopExecutor::SourceHere(const TaskKey& key, DeviceRank device) {
  if (TaskExecution* task = Find(key)) task->OnSourceHere(device);
}

ReplayRunner& LoopExecutor::replays() {
  CHECK(replays_.has_value()) << "replays before Attach";
  return *replays_;
}

void LoopExecutor::Refuse(const TaskKey& key) {
  if (Find(key) == nullptr) shared_->counters.messages_dropped += pending_.OnTaskEnded(key);
}

void LoopExecutor::RaiseEpoch(uint64_t epoch) {
  shared_->counters.messages_dropped += pending_.OnEpochRaised(epoch);
}

// After Disconnect the transport tells of no loss, so this tells the tasks itself.
void LoopExecutor::OnPeerStalled(PeerId peer, const absl::Status& why) {
  peers_.Forget(peer);
  shared_->transport.Disconnect(peer);
  TellLost(peer, why);
}

void LoopExecutor::OnPeerLost(PeerId peer, const absl::Status& status) {
  peers_.Forget(peer);
  TellLost(peer, status);
}

void LoopExecutor::TellLost(PeerId peer, const absl::Status& why) {
  for (auto& [key, running] : tasks_) running.task->OnPeerLost(peer, why);
  replays_->OnPeerLost(peer, why);
}

std::optional<int64_t> LoopExecutor::MovedBytes(const TaskKey& key) const {
  const TaskExecution* task = Find(key);
  if (task == nullptr) return std::nullopt;
  return task->moved_bytes();
}

const ExecutorCounters& LoopExecutor::counters() const {
  CHECK(shared_ != nullptr) << "counters before Attach";
  shared_->counters.staging_bytes_used =
      shared_->send_staging.used_bytes() + shared_->receive_staging.used_bytes();
  shared_->counters.send_staging_peak = shared_->send_staging.peak_bytes();
  shared_->counters.receive_staging_peak = shared_->receive_staging.peak_bytes();
  return shared_->counters;
}

void LoopExecutor::OnMessage(std::unique_ptr<IncomingMessage> message) {
  message = replays_->OnMessage(std::move(message));
  if (message == nullptr) return;
  const TaskKey key = KeyOf(message->header());
  if (TaskExecution* task = Find(key)) {
    task->OnMessage(std::move(message));
  } else if (pending_.Add(std::move(message))) {
    StartPendingRound();
  } else {
    shared_->counters.messages_dropped++;
  }
}

void LoopExecutor::StartPendingRound() {
  if (std::exchange(pending_round_started_, true)) return;
  loop_.RunAfter(options_.pending_for, [this] {
    pending_round_started_ = false;
    shared_->counters.messages_dropped += pending_.OnRound();
    if (!pending_.empty()) StartPendingRound();
  });
}

void LoopExecutor::OnSent(Ticket ticket, const absl::Status& status) {
  shared_->transfers.at(ticket).owner->OnSent(ticket, status);
}

void LoopExecutor::OnReceived(Ticket ticket, const absl::Status& status) {
  shared_->transfers.at(ticket).owner->OnReceived(ticket, status);
}

void LoopExecutor::Step() {
  // By key, because an observer may start tasks.
  stepping_.clear();
  for (const auto& [key, running] : tasks_) stepping_.push_back(key);
  for (const TaskKey& key : stepping_) {
    TaskExecution& task = *Find(key);
    if (task.Step()) shared_->steps.Request();
    if (task.done()) Finish(key);
  }
  if (replays_->Step()) shared_->steps.Request();
}

void LoopExecutor::Finish(const TaskKey& key) {
  const auto found = tasks_.find(key);
  // Out of the table first: the observer may start a task from inside its call.
  const Running running = std::move(found->second);
  tasks_.erase(found);
  loop_.Cancel(running.deadline);
  loop_.Cancel(running.stall_round);
  pending_.OnTaskEnded(key);
  running.task->observer().OnTaskDone(running.task->FinishReport());
}

TaskExecution* LoopExecutor::Find(const TaskKey& key) const {
  if (const auto found = tasks_.find(key); found != tasks_.end()) return found->second.task.get();
  return replays_->Find(key);
}

}  // namespace crossmesh
