#include "worker/tasks/pending_starts.h"

#include "common/base/check.h"

#include <utility>

namespace crossmesh {

void PendingStarts::Add(PendingStart start, absl::Duration wait_max,
                        absl::AnyInvocable<void()> late) {
  const TaskKey key = start.request.key;
  const TimerId timer = loop_.RunAfter(wait_max, std::move(late));
  CHECK(entries_.emplace(key, Entry{.start = std::move(start), .timer = timer}).second);
}

PendingStart* PendingStarts::Find(const TaskKey& key) {
  const auto found = entries_.find(key);
  return found == entries_.end() ? nullptr : &found->second.start;
}

const PendingStart* PendingStarts::FindWaiting(const TaskKey& key, const TaskCaller& caller) {
  const PendingStart* start = Find(key);
  return start != nullptr && start->caller.get() == &caller ? start : nullptr;
}

PendingStart PendingStarts::Take(const TaskKey& key) {
  const auto found = entries_.find(key);
  CHECK(found != entries_.end());
  Entry entry = std::move(found->second);
  entries_.erase(found);
  loop_.Cancel(entry.timer);
  return std::move(entry.start);
}

std::vector<TaskKey> PendingStarts::keys() const {
  std::vector<TaskKey> keys;
  for (const auto& [key, entry] : entries_) keys.push_back(key);
  return keys;
}

}  // namespace crossmesh
