#pragma once

#include <cstdint>
#include <optional>
#include <random>

namespace crossmesh {

// What goes wrong on a link, drawn from `seed` for each message: the same seed and the same
// messages give the same faults. The default is a link without faults.
struct FaultPlan {
  uint64_t seed = 0;
  // The message is held back for 1..delay_polls_max calls of the receiver's Progress, and with it
  // what was sent after it.
  double delay_probability = 0;
  int delay_polls_max = 8;
  // Messages of other channels overtake one that is held back; within a channel order is kept.
  bool reorder_channels = false;
  // The message vanishes: the receiver never sees it, the sender's never completes.
  double drop_probability = 0;
  // One bit of the payload arrives flipped.
  double corrupt_probability = 0;
  // The link breaks when one more message is sent in one direction.
  std::optional<int64_t> cut_after_messages;
};

// What happens to one message.
struct MessageFaults {
  bool cut = false;
  bool drop = false;
  int delay_polls = 0;
  std::optional<uint64_t> flipped_bit;  // of the payload

  friend bool operator==(const MessageFaults&, const MessageFaults&) = default;
};

// The faults of one direction of one link, message by message. Thread-compatible.
class FaultSequence {
 public:
  // `link` tells the directions of all links of a fabric apart.
  FaultSequence(const FaultPlan& plan, uint64_t link);

  MessageFaults Next(uint64_t payload_bytes);

  const FaultPlan& plan() const { return plan_; }

 private:
  bool Draw(double probability);

  FaultPlan plan_;
  std::mt19937_64 random_;
  int64_t messages_ = 0;
};

}  // namespace crossmesh
