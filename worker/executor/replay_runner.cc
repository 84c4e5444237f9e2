#include "worker/executor/replay_runner.h"

#include "common/base/status_macros.h"
#include "common/event_loop/event_loop.h"
#include "worker/executor/executor_resources.h"
#include "worker/executor/peer_table.h"
#include "worker/executor/pending_messages.h"
#include "worker/executor/replay_set.h"
#include "worker/executor/source_scales.h"
#include "worker/executor/stall_counter.h"
#include "worker/executor/task_check.h"
#include "worker/executor/task_execution.h"

#include <optional>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {

ReplayRunner::ReplayRunner(ExecutorResources& shared, PeerTable& peers, PendingMessages& pending)
    : shared_(shared), peers_(peers), pending_(pending) {}

ReplayRunner::~ReplayRunner() = default;

absl::Status ReplayRunner::StartReplays(ReplaySpec spec, ReplayObserver& observer) {
  RETURN_IF_ERROR(CheckReplays(spec));
  ASSIGN_OR_RETURN(const std::vector<std::optional<PeerId>> peer_ids,
                   peers_.Connect(TaskOf(spec, spec.buffers.front()), shared_.transport));
  Replaying& replaying = replays_[spec.key];
  replaying.set = std::make_unique<ReplaySet>(spec, peer_ids, shared_, observer);
  replaying.stall_limit = spec.stall_limit;
  stepping_.reserve(replays_.size());
  StartStallRound(spec.key);
  return absl::OkStatus();
}

absl::Status ReplayRunner::CheckReplays(const ReplaySpec& spec) const {
  if (spec.buffers.empty()) {
    return absl::InvalidArgumentError("replays: expected buffers, found none");
  }
  if (replays_.contains(spec.key)) {
    return absl::AlreadyExistsError(absl::StrCat("replays of operation ", spec.key.operation,
                                                 ", plan ", spec.key.plan, " were started before"));
  }
  for (const ReplaySpec::Buffer& buffer : spec.buffers) {
    RETURN_IF_ERROR(CheckTask(TaskOf(spec, buffer), shared_.send_staging.bytes()));
  }
  // A rewound task does not compute them again.
  if (!SourceScales(*spec.part, spec.buffers.front().sources).devices().empty()) {
    return absl::InvalidArgumentError(
        "replays: expected a part without scales to compute, found one with some");
  }
  return absl::OkStatus();
}

void ReplayRunner::StartStallRound(const ReplayKey& key) {
  Replaying& replaying = replays_.at(key);
  const absl::Duration round = replaying.stall_limit / StallCounter::kRoundsMax;
  replaying.stall_round = shared_.loop.RunAfter(round, [this, key] {
    const auto found = replays_.find(key);
    if (found == replays_.end()) return;
    found->second.set->OnStallRound();
    StartStallRound(key);
  });
}

void ReplayRunner::Replay(const ReplayKey& key, int32_t buffer, uint32_t instance) {
  const auto found = replays_.find(key);
  if (found == replays_.end()) return;
  ReplaySet& set = *found->second.set;
  set.Begin(buffer, instance);
  if (pending_.empty()) return;
  pending_.Take(key.OfInstance(instance), [&](std::unique_ptr<IncomingMessage> message) {
    set.OnMessage(std::move(message));
  });
}

void ReplayRunner::ReplaySourceHere(const ReplayKey& key, uint32_t instance) {
  TaskExecution* const task = Find(key.OfInstance(instance));
  if (task == nullptr) return;
  for (const DeviceRank device : task->spec().awaited_sources) task->OnSourceHere(device);
}

void ReplayRunner::TellStopped(const ReplayKey& key) {
  const auto found = replays_.find(key);
  if (found != replays_.end()) found->second.set->TellStopped();
}

void ReplayRunner::StopReplays(const ReplayKey& key, const absl::Status& why,
                               uint32_t next_instance) {
  const auto found = replays_.find(key);
  if (found == replays_.end()) return;
  found->second.set->Stop(why);
  shared_.counters.messages_dropped += pending_.OnReplaysStopped(key, next_instance);
  shared_.steps.Request();
}

std::unique_ptr<IncomingMessage> ReplayRunner::OnMessage(std::unique_ptr<IncomingMessage> message) {
  const auto found = replays_.find(ReplayKeyOf(KeyOf(message->header())));
  if (found == replays_.end()) return message;
  shared_.steps.Request();
  return found->second.set->OnMessage(std::move(message));
}

void ReplayRunner::OnPeerLost(PeerId peer, const absl::Status& why) {
  for (auto& [key, replaying] : replays_) replaying.set->OnPeerLost(peer, why);
}

bool ReplayRunner::Step() {
  bool more = false;
  // By key and by index, because an observer may start replays.
  stepping_.clear();
  for (const auto& [key, replaying] : replays_) stepping_.push_back(key);
  const size_t count = stepping_.size();
  for (size_t i = 0; i < count; ++i) {
    const ReplayKey key = stepping_[i];
    ReplaySet& set = *replays_.at(key).set;
    more = set.Step() || more;
    if (!set.stopped()) continue;
    const Replaying replaying = std::move(replays_.extract(key).mapped());
    shared_.loop.Cancel(replaying.stall_round);
    set.observer().OnReplaysStopped(key);
  }
  return more;
}

TaskExecution* ReplayRunner::Find(const TaskKey& key) const {
  const auto replays = replays_.find(ReplayKeyOf(key));
  return replays == replays_.end() ? nullptr : replays->second.set->Find(key.instance);
}

}  // namespace crossmesh
