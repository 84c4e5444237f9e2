#include "worker/transport/socket/connection_numbers.h"

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

TEST(ConnectionNumbersTest, TheyCountFromOne) {
  ConnectionNumbers numbers;
  EXPECT_EQ(numbers.Next(), 1);
  EXPECT_EQ(numbers.Next(), 2);
}

TEST(ConnectionNumbersTest, OnesThatThisSideHasHadDoNotBeginAgain) {
  ConnectionNumbers numbers;
  EXPECT_TRUE(numbers.MayBegin(1));
  numbers.Next();
  EXPECT_FALSE(numbers.MayBegin(1));
  EXPECT_TRUE(numbers.MayBegin(2));
}

TEST(ConnectionNumbersTest, OnesThatEndedAreSkippedInWhateverOrderTheyDid) {
  ConnectionNumbers numbers;
  numbers.Skip(2);
  numbers.Skip(4);
  EXPECT_FALSE(numbers.MayBegin(2));
  EXPECT_EQ(numbers.Next(), 1);
  EXPECT_EQ(numbers.Next(), 3);
  EXPECT_EQ(numbers.Next(), 5);
  numbers.Skip(6);
  numbers.Skip(5);
  EXPECT_EQ(numbers.Next(), 7);
}

}  // namespace
}  // namespace crossmesh
