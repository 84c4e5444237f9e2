#include "worker/transport/testing/fault_plan.h"

#include <algorithm>

namespace crossmesh {
namespace {

// SplitMix64's finaliser: neighbouring seeds and links give unrelated sequences.
uint64_t Mix(uint64_t value) {
  value += 0x9E3779B97F4A7C15;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EB;
  return value ^ (value >> 31);
}

}  // namespace

FaultSequence::FaultSequence(const FaultPlan& plan, uint64_t link)
    : plan_(plan), random_(Mix(plan.seed ^ Mix(link))) {}

// Draws the same number of values for every message, so that one kind of fault does not change
// where the others strike.
MessageFaults FaultSequence::Next(uint64_t payload_bytes) {
  MessageFaults faults;
  faults.cut = plan_.cut_after_messages.has_value() && messages_ >= *plan_.cut_after_messages;
  ++messages_;
  faults.drop = Draw(plan_.drop_probability);
  const bool delay = Draw(plan_.delay_probability);
  const uint64_t polls = random_() % static_cast<uint64_t>(std::max(plan_.delay_polls_max, 1));
  if (delay) faults.delay_polls = static_cast<int>(polls) + 1;
  const bool corrupt = Draw(plan_.corrupt_probability);
  const uint64_t bit = random_();
  if (corrupt && payload_bytes > 0) faults.flipped_bit = bit % (payload_bytes * 8);
  return faults;
}

bool FaultSequence::Draw(double probability) {
  // The top 53 bits as a number in [0, 1): unlike std::bernoulli_distribution the same everywhere.
  return static_cast<double>(random_() >> 11) * 0x1p-53 < probability;
}

}  // namespace crossmesh
