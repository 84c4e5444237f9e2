#include "worker/executor/replay_set.h"

#include "common/base/check.h"
#include "worker/executor/pending_messages.h"
#include "worker/executor/wire_message.h"

#include <algorithm>

namespace crossmesh {

ReplaySet::ReplaySet(const ReplaySpec& spec, std::span<const std::optional<PeerId>> peer_ids,
                     ExecutorResources& shared, ReplayObserver& observer)
    : shared_(shared), observer_(observer), next_instance_(spec.first_instance) {
  for (const ReplaySpec::Buffer& buffer : spec.buffers) {
    buffers_.push_back({.task = std::make_unique<TaskExecution>(TaskOf(spec, buffer), peer_ids,
                                                                shared, observer)});
  }
  // A receiver begins an instance when it has ended the one before in the same buffer, which this
  // worker may not know yet: it can be so many instances ahead.
  early_max_ = buffers_.size() * spec.part->channels().size();
  early_.reserve(early_max_);
}

void ReplaySet::Begin(int32_t index, uint32_t instance) {
  if (stopping_) return;
  CHECK(index >= 0 && index < std::ssize(buffers_))
      << "buffer " << index << " of " << buffers_.size();
  Buffer& buffer = buffers_[index];
  CHECK(!buffer.running) << "buffer " << index << " has instance " << buffer.instance;
  CHECK(!IsPast(instance)) << "instance " << instance << ": expected at least " << next_instance_;
  next_instance_ = instance + 1;
  buffer.instance = instance;
  buffer.running = true;
  buffer.task->Rewind(instance);
  buffer.task->Begin();
  for (const EarlyReady& early : early_) {
    if (early.instance == instance) buffer.task->OnReady(early.channel);
  }
  std::erase_if(early_, [this](const EarlyReady& early) { return IsPast(early.instance); });
}

void ReplaySet::Stop(const absl::Status& why) {
  stopping_ = true;
  for (Buffer& buffer : buffers_) {
    if (buffer.running) buffer.task->Cancel(why);
  }
}

std::unique_ptr<IncomingMessage> ReplaySet::OnMessage(std::unique_ptr<IncomingMessage> message) {
  const MessageHeader& header = message->header();
  if (static_cast<MessageKind>(header.kind) == MessageKind::kStopped) {
    const TaskExecution& task = *buffers_.front().task;
    // Of whatever instance.
    if (task.IsOurs(header))
      observer_.OnPeerStopped(ReplayKeyOf(KeyOf(header)), task.PeerOf(header));
    return nullptr;
  }
  if (TaskExecution* const task = Find(header.instance)) {
    task->OnMessage(std::move(message));
    return nullptr;
  }
  // The worker is there, even if the instance has ended or failed here.
  const MessageKind kind = static_cast<MessageKind>(header.kind);
  if (kind == MessageKind::kProbe && buffers_.front().task->Answer(header)) return nullptr;
  if (IsPast(header.instance) || kind == MessageKind::kAlive) {
    shared_.counters.messages_dropped++;
    return nullptr;
  }
  if (KeepIfReady(header)) return nullptr;
  return message;
}

bool ReplaySet::KeepIfReady(const MessageHeader& header) {
  if (static_cast<MessageKind>(header.kind) != MessageKind::kReady ||
      !buffers_.front().task->IsOurs(header) || early_.size() >= early_max_) {
    return false;
  }
  early_.push_back({.instance = header.instance, .channel = header.channel});
  return true;
}

void ReplaySet::OnPeerLost(PeerId peer, const absl::Status& why) {
  for (Buffer& buffer : buffers_) buffer.task->OnPeerLost(peer, why);
}

void ReplaySet::OnStallRound() {
  for (Buffer& buffer : buffers_) {
    // What was told of the end may be with a peer that takes nothing.
    const bool is_ending = stopping_ && !buffer.task->quiet();
    if (buffer.running || is_ending) buffer.task->OnStallRound();
  }
}

bool ReplaySet::Step() {
  bool more = false;
  for (Buffer& buffer : buffers_) {
    if (!buffer.running) continue;
    // The step stands first, since `||` would skip it.
    more = buffer.task->Step() || more;
    if (buffer.task->done()) Finish(buffer);
  }
  return more;
}

void ReplaySet::Finish(Buffer& buffer) {
  buffer.running = false;
  observer_.OnTaskDone(buffer.task->FinishReport());
}

TaskExecution* ReplaySet::Find(uint32_t instance) {
  for (Buffer& buffer : buffers_) {
    if (buffer.running && buffer.instance == instance) return buffer.task.get();
  }
  return nullptr;
}

bool ReplaySet::stopped() const {
  return stopping_ && std::ranges::none_of(buffers_, &Buffer::running) &&
         std::ranges::all_of(buffers_, [](const Buffer& buffer) { return buffer.task->quiet(); });
}

}  // namespace crossmesh
