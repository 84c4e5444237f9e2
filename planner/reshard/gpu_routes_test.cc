#include "planner/reshard/gpu_routes.h"

#include "common/base/check.h"
#include "common/mesh/gpu_host.h"
#include "common/plan/testing/tables.h"
#include "common/testing/status_matchers.h"

#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using testing::ElementsAre;

// Demands between a.0-3 (ranks 0 to 3), b.0-3 (4 to 7) and c.0 (8).
class GpuRoutesTest : public testing::Test {
 protected:
  void Add(std::vector<int32_t> holders, std::vector<int32_t> receivers, int64_t bytes) {
    demands_.demands.push_back(
        {demands_.sets.Intern(holders), demands_.sets.Intern(receivers), bytes});
  }

  HostRoutes Route() const {
    absl::StatusOr<HostRoutes> routes = RouteBetweenGpus(demands_, network_, 1);
    CHECK_OK(routes);
    return *std::move(routes);
  }

  // "100: 0>4 4>5" for each piece of a group; hops of another root than the one before after "|".
  static std::vector<std::string> PiecesOf(const HostRoutes& routes, int64_t group) {
    std::vector<std::string> texts;
    for (const Piece& piece : routes.PiecesOf(group)) {
      std::string text = absl::StrCat(piece.end, ":");
      int32_t root = -1;
      for (const HostHop& hop : routes.HopsOf(piece)) {
        if (root != -1 && hop.root != root) absl::StrAppend(&text, " |");
        root = hop.root;
        absl::StrAppend(&text, " ", hop.from, ">", hop.to);
      }
      texts.push_back(text);
    }
    return texts;
  }

  static GpuNetwork Network() {
    std::vector<Host> hosts;
    for (const std::string name : {"a", "b", "c"}) hosts.push_back(*GpuHost("h100x8", name));
    const TensorTable table = TableOf({TensorOf("[20]: x=4 on a.0-3 [x] -> y=5 on b.0-3,c.0 [y]")});
    return *GpuNetworkOf(table, *Topology::Create(std::move(hosts), {}));
  }

  const GpuNetwork network_ = Network();
  Demands demands_;
};

TEST_F(GpuRoutesTest, AByteEntersAHostOnceAndGoesOnByLinks) {
  Add({0}, {4, 5}, 1);  // too few bytes for two entries
  EXPECT_THAT(PiecesOf(Route(), 0), ElementsAre("1: 0>4 4>5"));
}

TEST_F(GpuRoutesTest, EveryGpuThatNeedsTheBytesIsTheEntryOfAPart) {
  Add({0}, {4, 5, 6, 7}, 400);
  EXPECT_THAT(PiecesOf(Route(), 0), ElementsAre("100: 0>4 4>5 4>6 4>7", "200: 0>5 5>4 5>6 5>7",
                                                "300: 0>6 6>4 6>5 6>7", "400: 0>7 7>4 7>5 7>6"))
      << "each has as much to hand on";
}

TEST_F(GpuRoutesTest, ReceiversBesideAHolderAreFedByLinks) {
  Add({0}, {1, 2, 8}, 100);
  EXPECT_THAT(PiecesOf(Route(), 0), ElementsAre("100: 0>8 0>1 1>2"));
}

TEST_F(GpuRoutesTest, HoldersOfSeveralHostsFeedTheirOwn) {
  Add({0, 4}, {1, 5}, 100);
  EXPECT_THAT(PiecesOf(Route(), 0), ElementsAre("100: 0>1 | 4>5"));
}

TEST_F(GpuRoutesTest, SmallGroupsTakeTheEntryThatHasLeast) {
  Add({0}, {4, 5}, 1);
  Add({1}, {4, 5}, 1);
  const HostRoutes routes = Route();
  EXPECT_THAT(PiecesOf(routes, 0), ElementsAre("1: 0>4 4>5"));
  EXPECT_THAT(PiecesOf(routes, 1), ElementsAre("1: 1>5 5>4"));
}

TEST_F(GpuRoutesTest, TurnsGoRoundFromTheNextHigherRank) {
  for (int32_t from = 0; from < 3; ++from) {
    for (int32_t to = 0; to < 3; ++to) {
      if (from != to) Add({from}, {to}, 100 * (from == 0 ? to : 1));
    }
  }
  const HostRoutes routes = Route();
  const std::vector<DueTime> due = TakeTurns(demands_, routes);
  constexpr int32_t kAll = DueTime::kParts;
  // Of 0: to 1 for a third, then to 2. Of 1: to 2, then to 0. Of 2: to 0, then to 1.
  EXPECT_EQ(due[0], (DueTime{0, kAll / 3}));
  EXPECT_EQ(due[1], (DueTime{kAll / 3, kAll}));
  EXPECT_EQ(due[2], (DueTime{kAll / 2, kAll}));
  EXPECT_EQ(due[3], (DueTime{0, kAll / 2}));
  EXPECT_EQ(due[4], (DueTime{0, kAll / 2}));
  EXPECT_EQ(due[5], (DueTime{kAll / 2, kAll}));
}

}  // namespace
}  // namespace crossmesh
