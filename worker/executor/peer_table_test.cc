#include "worker/executor/peer_table.h"

#include "common/testing/status_matchers.h"
#include "worker/executor/testing/bare_task.h"
#include "worker/executor/testing/recording_transport.h"
#include "worker/executor/testing/tile_memory.h"

#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;

// From a.0 to b.0 and c.0, at the worker of a.
class PeerTableTest : public testing::Test {
 protected:
  const Plan plan_ = PlanOfRelays(TensorOf("[8]: x=1 on a.0 [-] -> x=2 on b.0,c.0 [x]"),
                                  {{"a.0 > b.0"}, {.chain = "a.0 > c.0", .slice_class = 1}});
  const TileMemory memory_{plan_};
  TaskSpec spec_ = SpecOfHost(plan_, "a", memory_);
  RecordingTransport transport_;
  PeerTable table_;
};

TEST_F(PeerTableTest, ConnectsToThePeersThatATaskExchangesMessagesWith) {
  spec_.peers.insert(spec_.peers.begin() + 1, {.worker = "d", .address = "address of d"});
  for (auto& [device, peer] : spec_.peer_of_device) ++peer;
  EXPECT_THAT(table_.Connect(spec_, transport_),
              IsOkAndHolds(ElementsAre(std::nullopt, std::nullopt, PeerId(1), PeerId(2))));
  EXPECT_THAT(transport_.connected, ElementsAre("address of b", "address of c"));
}

TEST_F(PeerTableTest, TasksShareConnections) {
  for (int task = 0; task < 2; ++task) {
    EXPECT_THAT(table_.Connect(spec_, transport_),
                IsOkAndHolds(ElementsAre(std::nullopt, PeerId(1), PeerId(2))));
  }
  EXPECT_THAT(transport_.connected, ElementsAre("address of b", "address of c"));
}

TEST_F(PeerTableTest, APeerThatIsForgottenIsConnectedAnew) {
  ASSERT_OK(table_.Connect(spec_, transport_));
  table_.Forget(PeerId(1));
  EXPECT_THAT(table_.Connect(spec_, transport_),
              IsOkAndHolds(ElementsAre(std::nullopt, PeerId(3), PeerId(2))));
  EXPECT_THAT(transport_.connected, ElementsAre("address of b", "address of c", "address of b"));
}

}  // namespace
}  // namespace crossmesh
