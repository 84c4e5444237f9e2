#include "worker/executor/pending_messages.h"

#include <utility>
#include <vector>

namespace crossmesh {
namespace {

constexpr size_t kPastTasksMax = 1024;

}  // namespace

TaskKey KeyOf(const MessageHeader& header) {
  return {.operation = header.operation,
          .epoch = header.epoch,
          .plan = header.plan,
          .instance = header.instance};
}

bool PendingMessages::Add(std::unique_ptr<IncomingMessage> message) {
  if (std::ssize(messages_) >= messages_max_ || IsPast(KeyOf(message->header()))) return false;
  messages_.push_back({std::move(message), round_});
  return true;
}

void PendingMessages::Take(const TaskKey& key,
                           absl::FunctionRef<void(std::unique_ptr<IncomingMessage>)> deliver) {
  // Out of the list first: what is delivered may end a task, which drops messages.
  std::vector<std::unique_ptr<IncomingMessage>> taken;
  std::deque<Pending> others;
  for (Pending& pending : messages_) {
    if (KeyOf(pending.message->header()) == key) {
      taken.push_back(std::move(pending.message));
    } else {
      others.push_back(std::move(pending));
    }
  }
  messages_ = std::move(others);
  for (std::unique_ptr<IncomingMessage>& message : taken) deliver(std::move(message));
}

int64_t PendingMessages::OnRound() {
  int64_t dropped = 0;
  while (!messages_.empty() && messages_.front().round < round_) {
    messages_.pop_front();
    ++dropped;
  }
  ++round_;
  return dropped;
}

int64_t PendingMessages::OnTaskEnded(const TaskKey& key) {
  if (past_.insert(key).second) past_in_order_.push_back(key);
  // Bounded: a message of a task that ended longer ago waits for its time, and is dropped then.
  if (past_in_order_.size() > kPastTasksMax) {
    past_.erase(past_in_order_.front());
    past_in_order_.pop_front();
  }
  return static_cast<int64_t>(std::erase_if(
      messages_, [&](const Pending& pending) { return KeyOf(pending.message->header()) == key; }));
}

int64_t PendingMessages::OnReplaysStopped(const ReplayKey& key, uint32_t next_instance) {
  if (next_instance_of_.insert_or_assign(key, next_instance).second) {
    stopped_in_order_.push_back(key);
  }
  if (stopped_in_order_.size() > kPastTasksMax) {
    next_instance_of_.erase(stopped_in_order_.front());
    stopped_in_order_.pop_front();
  }
  return static_cast<int64_t>(std::erase_if(messages_, [&](const Pending& pending) {
    const TaskKey of = KeyOf(pending.message->header());
    return ReplayKeyOf(of) == key && of.instance < next_instance;
  }));
}

// Without this the messages of a task that has ended here would be kept until their time is over,
// and their senders would wait for it.
bool PendingMessages::IsPast(const TaskKey& key) const {
  if (key.epoch < epoch_ || past_.contains(key)) return true;
  const auto stopped = next_instance_of_.find(ReplayKeyOf(key));
  return stopped != next_instance_of_.end() && key.instance < stopped->second;
}

int64_t PendingMessages::OnEpochRaised(uint64_t epoch) {
  epoch_ = epoch;
  return static_cast<int64_t>(std::erase_if(
      messages_, [&](const Pending& pending) { return pending.message->header().epoch < epoch; }));
}

}  // namespace crossmesh
