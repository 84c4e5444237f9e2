#include "worker/executor/loop_executor.h"

#include "common/base/byte_count.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "worker/memory/arena.h"

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
  const ByteCount bytes(StagingPool::WholeUnits(options_.staging_bytes / 2));
  ASSIGN_OR_RETURN(auto send_staging, Arena::Create("crossmesh:send_staging", bytes));
  ASSIGN_OR_RETURN(auto receive_staging, Arena::Create("crossmesh:receive_staging", bytes));
  transport.Lend({.bytes = send_staging->bytes(), .fd = send_staging->fd()});
  shared_ = std::make_unique<ExecutorResources>(transport, options_, std::move(send_staging),
                                                std::move(receive_staging));
  return absl::OkStatus();
}

absl::Status LoopExecutor::Start(TaskSpec spec, TaskObserver& observer) {
  RETURN_IF_ERROR(CheckStart(spec));
  ASSIGN_OR_RETURN(const std::vector<std::optional<PeerId>> peer_ids, Connect(spec));
  const TaskKey key = spec.key;
  Running& running = tasks_[key];
  running.task =
      std::make_unique<TaskExecution>(std::move(spec), peer_ids, *shared_, *this, observer);
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
    return absl::AlreadyExistsError(
        absl::StrCat("operation ", spec.key.operation, " of epoch ", spec.key.epoch, ", attempt ",
                     spec.key.attempt, ", instance ", spec.key.instance, " was started before"));
  }
  return TaskExecution::Validate(spec, shared_->send_staging.bytes());
}

absl::StatusOr<std::vector<std::optional<PeerId>>> LoopExecutor::Connect(const TaskSpec& spec) {
  const std::vector<bool> needed = TaskExecution::NeededPeers(spec);
  std::vector<std::optional<PeerId>> ids(spec.peers.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    if (!needed[i]) continue;
    ASSIGN_OR_RETURN(ids[i], peers_.FindOrConnect(spec.peers[i].address, shared_->transport));
  }
  return ids;
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
  // It may be there and have refused: then the connection serves other tasks. Of one that is gone
  // the transport tells.
  if (TaskExecution* task = Find(key)) task->GiveUpPeer(worker, why);
}

void LoopExecutor::SourceHere(const TaskKey& key, DeviceRank device) {
  if (TaskExecution* task = Find(key)) task->OnSourceHere(device);
}

absl::Status LoopExecutor::StartReplays(ReplaySpec spec, ReplayObserver& observer) {
  CHECK(shared_ != nullptr) << "StartReplays before Attach";
  const auto refused = [](const auto&... why) {
    return absl::InvalidArgumentError(absl::StrCat("replays: ", why...));
  };
  if (spec.buffers.empty()) return refused("expected buffers, found none");
  if (replays_.contains(spec.key)) {
    return absl::AlreadyExistsError(absl::StrCat("replays of operation ", spec.key.operation,
                                                 ", attempt ", spec.key.attempt,
                                                 " were started before"));
  }
  for (const ReplaySpec::Buffer& buffer : spec.buffers) {
    RETURN_IF_ERROR(
        TaskExecution::Validate(ReplaySet::SpecOf(spec, buffer), shared_->send_staging.bytes()));
  }
  if (!SourceScales(*spec.part, spec.buffers.front().sources).devices().empty()) {
    return refused("expected a part without scales to compute, found one with some");
  }
  ASSIGN_OR_RETURN(const std::vector<std::optional<PeerId>> peer_ids,
                   Connect(ReplaySet::SpecOf(spec, spec.buffers.front())));
  Replaying& replaying = replays_[spec.key];
  replaying.set = std::make_unique<ReplaySet>(spec, peer_ids, *shared_, *this, observer);
  replaying.stall_limit = spec.stall_limit;
  stepping_replays_.reserve(replays_.size());
  StartReplayStallRound(spec.key);
  return absl::OkStatus();
}

void LoopExecutor::StartReplayStallRound(const ReplayKey& key) {
  Replaying& replaying = replays_.at(key);
  replaying.stall_round =
      loop_.RunAfter(replaying.stall_limit / StallCounter::kRoundsMax, [this, key] {
        const auto found = replays_.find(key);
        if (found == replays_.end()) return;
        found->second.set->OnStallRound();
        StartReplayStallRound(key);
      });
}

void LoopExecutor::Replay(const ReplayKey& key, int32_t buffer, uint32_t instance) {
  const auto found = replays_.find(key);
  if (found == replays_.end()) return;
  ReplaySet& set = *found->second.set;
  set.Begin(buffer, instance);
  if (pending_.empty()) return;
  pending_.Take(key.OfInstance(instance), [&](std::unique_ptr<IncomingMessage> message) {
    set.OnMessage(std::move(message));
  });
}

void LoopExecutor::ReplaySourceHere(const ReplayKey& key, uint32_t instance) {
  TaskExecution* const task = Find(key.OfInstance(instance));
  if (task == nullptr) return;
  for (const DeviceRank device : task->spec().awaited_sources) task->OnSourceHere(device);
}

void LoopExecutor::StopReplays(const ReplayKey& key, const absl::Status& why,
                               uint32_t next_instance) {
  const auto found = replays_.find(key);
  if (found == replays_.end()) return;
  found->second.set->Stop(why);
  shared_->counters.messages_dropped += pending_.OnReplaysStopped(key, next_instance);
  RequestStep();
}

void LoopExecutor::Refuse(const TaskKey& key) {
  if (Find(key) == nullptr) shared_->counters.messages_dropped += pending_.OnTaskEnded(key);
}

void LoopExecutor::RaiseEpoch(uint64_t epoch) {
  shared_->counters.messages_dropped += pending_.OnEpochRaised(epoch);
}

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
  for (auto& [key, replaying] : replays_) replaying.set->OnPeerLost(peer, why);
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
  return shared_->counters;
}

void LoopExecutor::OnMessage(std::unique_ptr<IncomingMessage> message) {
  const TaskKey key = KeyOf(message->header());
  if (const auto replays = replays_.find(ReplayKeyOf(key)); replays != replays_.end()) {
    message = replays->second.set->OnMessage(std::move(message));
    RequestStep();
    if (message == nullptr) return;
  }
  if (TaskExecution* task = Find(key)) {
    task->OnMessage(std::move(message));
  } else if (pending_.Add(std::move(message))) {
    StartParkingRound();
  } else {
    shared_->counters.messages_dropped++;
  }
}

void LoopExecutor::StartParkingRound() {
  if (std::exchange(pending_round_started_, true)) return;
  loop_.RunAfter(options_.parked_for, [this] {
    pending_round_started_ = false;
    shared_->counters.messages_dropped += pending_.OnRound();
    if (!pending_.empty()) StartParkingRound();
  });
}

void LoopExecutor::OnSent(Ticket ticket, const absl::Status& status) {
  shared_->transfers.at(ticket).task->OnSent(ticket, status);
}

void LoopExecutor::OnReceived(Ticket ticket, const absl::Status& status) {
  shared_->transfers.at(ticket).task->OnReceived(ticket, status);
}

void LoopExecutor::RequestStep() {
  if (std::exchange(step_requested_, true)) return;
  loop_.Post([this] { Step(); });
}

void LoopExecutor::PumpAfter(absl::Duration delay, const TaskExecution& task, PeerId peer) {
  loop_.RunAfter(delay, [this, key = task.spec().key, peer] {
    if (TaskExecution* const found = Find(key)) found->PumpPeer(peer);
  });
}

void LoopExecutor::Step() {
  step_requested_ = false;
  // By key, because an observer may start tasks.
  stepping_.clear();
  for (const auto& [key, running] : tasks_) stepping_.push_back(key);
  for (const TaskKey& key : stepping_) {
    TaskExecution& task = *Find(key);
    if (task.Step()) RequestStep();
    if (task.done()) Finish(key);
  }
  if (StepReplays()) RequestStep();
}

bool LoopExecutor::StepReplays() {
  bool more = false;
  // By key and by index, because an observer may start replays.
  stepping_replays_.clear();
  for (const auto& [key, replaying] : replays_) stepping_replays_.push_back(key);
  const size_t count = stepping_replays_.size();
  for (size_t i = 0; i < count; ++i) {
    const ReplayKey key = stepping_replays_[i];
    ReplaySet& set = *replays_.at(key).set;
    more = set.Step() || more;
    if (!set.stopped()) continue;
    const Replaying replaying = std::move(replays_.extract(key).mapped());
    loop_.Cancel(replaying.stall_round);
    set.observer().OnReplaysStopped(key);
  }
  return more;
}

void LoopExecutor::Finish(const TaskKey& key) {
  const auto found = tasks_.find(key);
  const Running running = std::move(found->second);
  tasks_.erase(found);
  loop_.Cancel(running.deadline);
  loop_.Cancel(running.stall_round);
  pending_.OnTaskEnded(key);
  shared_->counters.relays_succeeded += running.task->progress().relays_succeeded();
  shared_->counters.relays_failed += running.task->progress().relays_failed();
  shared_->counters.checksum_failures += running.task->progress().checksum_failures();
  running.task->observer().OnTaskDone(running.task->TakeReport());
}

TaskExecution* LoopExecutor::Find(const TaskKey& key) const {
  if (const auto found = tasks_.find(key); found != tasks_.end()) return found->second.task.get();
  const auto replays = replays_.find(ReplayKeyOf(key));
  return replays == replays_.end() ? nullptr : replays->second.set->Find(key.instance);
}

}  // namespace crossmesh
