#include "common/communicators/communicator_key.h"

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

TEST(CommunicatorKeyTest, ItsTextHasAllOfASmallGroup) {
  const CommunicatorKey key = {
      .ranks = {{"GPU-a", 1}, {"GPU-b", 7}}, .purpose = "relay", .epoch = 4};
  EXPECT_EQ(key.ToString(), "relay@4[GPU-a#1,GPU-b#7]");
}

TEST(CommunicatorKeyTest, ItsTextOfALargeGroupIsShort) {
  CommunicatorKey key = {.ranks = std::vector<RankName>(100), .purpose = "relay", .epoch = 4};
  for (uint64_t rank = 0; rank < 100; ++rank) key.ranks[rank] = {"GPU-a", rank};
  EXPECT_EQ(key.ToString(), "relay@4[GPU-a#0,GPU-a#1,GPU-a#2 and 97 more]");
}

TEST(CommunicatorKeyTest, TheOrderOfRanksTellsGroupsApart) {
  const CommunicatorKey key = {.ranks = {{"a", 1}, {"b", 1}}};
  const CommunicatorKey turned = {.ranks = {{"b", 1}, {"a", 1}}};
  EXPECT_NE(key, turned);
}

}  // namespace
}  // namespace crossmesh
