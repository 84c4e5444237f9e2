#include "worker/transport/testing/fault_plan.h"

#include <vector>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

std::vector<MessageFaults> Draw(const FaultPlan& plan, uint64_t link, int count) {
  FaultSequence sequence(plan, link);
  std::vector<MessageFaults> faults;
  for (int i = 0; i < count; ++i) faults.push_back(sequence.Next(1000));
  return faults;
}

constexpr FaultPlan kEverything = {.seed = 11,
                                   .delay_probability = 0.3,
                                   .delay_polls_max = 4,
                                   .drop_probability = 0.3,
                                   .corrupt_probability = 0.3};

TEST(FaultSequenceTest, TheDefaultIsNoFault) {
  for (const MessageFaults& faults : Draw({}, 1, 100)) EXPECT_EQ(faults, MessageFaults());
}

TEST(FaultSequenceTest, SeedAndLinkDecide) {
  FaultPlan other_seed = kEverything;
  other_seed.seed = 12;
  EXPECT_EQ(Draw(kEverything, 1, 100), Draw(kEverything, 1, 100));
  EXPECT_NE(Draw(kEverything, 1, 100), Draw(kEverything, 2, 100));
  EXPECT_NE(Draw(kEverything, 1, 100), Draw(other_seed, 1, 100));
}

TEST(FaultSequenceTest, FaultsStrikeAsOftenAsAsked) {
  int drops = 0;
  int delays = 0;
  int flips = 0;
  for (const MessageFaults& faults : Draw(kEverything, 1, 10000)) {
    drops += faults.drop ? 1 : 0;
    delays += faults.delay_polls > 0 ? 1 : 0;
    flips += faults.flipped_bit.has_value() ? 1 : 0;
    EXPECT_LE(faults.delay_polls, 4);
    if (faults.flipped_bit.has_value()) {
      EXPECT_LT(*faults.flipped_bit, 8000);
    }
  }
  for (const int count : {drops, delays, flips}) EXPECT_NEAR(count, 3000, 200);
}

TEST(FaultSequenceTest, AnEmptyPayloadIsNotCorrupted) {
  FaultSequence sequence({.corrupt_probability = 1}, 1);
  EXPECT_FALSE(sequence.Next(0).flipped_bit.has_value());
}

TEST(FaultSequenceTest, TheCutComesAfterTheGivenMessages) {
  const std::vector<MessageFaults> faults = Draw({.cut_after_messages = 3}, 1, 5);
  for (size_t i = 0; i < faults.size(); ++i) EXPECT_EQ(faults[i].cut, i >= 3);
}

}  // namespace
}  // namespace crossmesh
