#pragma once

namespace crossmesh {

// Counts the rounds of the task's stall timer in which something that was waited for did not move.
// Counting rounds instead of reading a clock makes a worker that was itself stopped for a while
// not blame others at once.
class StallCounter {
 public:
  static constexpr int kRoundsMax = 4;  // a stall limit has this many rounds
  // Of a receiver. Both ends of a cut link notice it, and accuse each other; the sender is to be
  // heard first, since of two that lack an answer the other one is taken to be gone.
  static constexpr int kReceiverRoundsMax = kRoundsMax + 1;

  explicit StallCounter(int rounds_max = kRoundsMax) : rounds_max_(rounds_max) {}

  void OnProgress() { rounds_ = 0; }
  // Once a round. True when it has been too long.
  bool OnRound(bool waiting) {
    if (!waiting) rounds_ = 0;
    return waiting && ++rounds_ > rounds_max_;
  }
  int rounds() const { return rounds_; }

 private:
  int rounds_max_;
  int rounds_ = 0;
};

}  // namespace crossmesh
