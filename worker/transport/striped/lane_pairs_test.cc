#include "worker/transport/striped/lane_pairs.h"

#include <algorithm>
#include <set>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;

TEST(LanePairsTest, FewNicsAreJoinedEachWithEach) {
  EXPECT_THAT(LanePairs(1, 1), ElementsAre(LanePair{0, 0}));
  EXPECT_THAT(LanePairs(2, 3), ElementsAre(LanePair{0, 0}, LanePair{0, 1}, LanePair{0, 2},
                                           LanePair{1, 0}, LanePair{1, 1}, LanePair{1, 2}));
  EXPECT_EQ(LanePairs(4, 4).size(), 16);
}

TEST(LanePairsTest, OfManyNicsEachHasALane) {
  EXPECT_THAT(LanePairs(8, 3),
              ElementsAre(LanePair{0, 0}, LanePair{1, 1}, LanePair{2, 2}, LanePair{3, 0},
                          LanePair{4, 1}, LanePair{5, 2}, LanePair{6, 0}, LanePair{7, 1}));
}

TEST(LanePairsTest, BothSidesFindTheSameDistinctLanes) {
  for (size_t local = 1; local <= 16; ++local) {
    for (size_t remote = 1; remote <= 16; ++remote) {
      std::set<std::pair<size_t, size_t>> here;
      std::set<std::pair<size_t, size_t>> there;
      for (const LanePair& pair : LanePairs(local, remote)) here.insert({pair.local, pair.remote});
      for (const LanePair& pair : LanePairs(remote, local)) there.insert({pair.remote, pair.local});
      EXPECT_EQ(here, there) << local << " and " << remote;
      EXPECT_EQ(here.size(), LanePairs(local, remote).size());
      EXPECT_LE(here.size(), kLanesMax);
      EXPECT_EQ(LanePairs(local, remote)[0], LanePair());
    }
  }
}

}  // namespace
}  // namespace crossmesh
