#include "worker/executor/due_queue.h"

#include <algorithm>

namespace crossmesh {

DueQueue::DueQueue(const PreparedPart& part, const PreparedPart::Channel& channel)
    : part_(part),
      entries_(part.entries(channel)),
      next_chunk_(channel.entry_count),
      asleep_(channel.entry_count) {
  awake_.reserve(channel.entry_count);
  Rewind();
}

void DueQueue::Rewind() {
  std::ranges::fill(next_chunk_, 0);
  std::fill(asleep_.begin(), asleep_.end(), false);
  awake_.clear();
  left_ = static_cast<int32_t>(entries_.size());
  for (int32_t entry = 0; entry < left_; ++entry) Push(entry);
}

void DueQueue::Advance() {
  const int32_t entry = Pop();
  if (next_chunk_[entry] == NodeOf(entry).chunks) {
    next_chunk_[entry] = kEnded;
    --left_;
  } else {
    ++next_chunk_[entry];
    Push(entry);
  }
}

void DueQueue::EndEntry() {
  next_chunk_[Pop()] = kEnded;
  --left_;
}

void DueQueue::Sleep() { asleep_[Pop()] = true; }

void DueQueue::Wake(int32_t entry) {
  if (!asleep_[entry]) return;
  asleep_[entry] = false;
  Push(entry);
}

const PreparedPart::Node& DueQueue::NodeOf(int32_t entry) const {
  return part_.nodes()[entries_[entry].from_node];
}

// An entry is in the heap once, with its next chunk; not at all while it sleeps or when it has
// ended.
void DueQueue::Push(int32_t entry) {
  const PreparedPart::Node& node = NodeOf(entry);
  awake_.push_back({.due = node.due.Of(next_chunk_[entry], node.chunks), .entry = entry});
  std::push_heap(awake_.begin(), awake_.end());
}

int32_t DueQueue::Pop() {
  std::pop_heap(awake_.begin(), awake_.end());
  const int32_t entry = awake_.back().entry;
  awake_.pop_back();
  return entry;
}

}  // namespace crossmesh
