// Links that have failed, between workers that come and go.

#include "common/base/fake_clock.h"
#include "common/testing/status_matchers.h"
#include "controller/membership/failed_links.h"
#include "controller/membership/testing/joined_worker.h"
#include "controller/membership/worker_registry.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

class WorkerLinksTest : public testing::Test {
 protected:
  WorkerLinksTest() {
    for (const char* name : {"w0", "w1", "w2"}) sessions_.push_back(Join(name, 1));
  }
  // Its device is on the host "h-" + name.
  uint64_t Join(const std::string& name, uint64_t incarnation) {
    return crossmesh::Join(registry_, RecordOf(name, {{"h-" + name, 0}}, incarnation));
  }

  FakeClock clock_;
  DeafMembershipListener listener_;
  WorkerRegistry registry_{WorkerRegistry::Options{}, clock_, listener_};
  std::vector<uint64_t> sessions_;
};

TEST_F(WorkerLinksTest, ALinkIsNamedByHostsAndAtBothWorkers) {
  registry_.LinkFailed("w1", "w0", "no bytes");
  EXPECT_EQ(registry_.FailedHostLinks(),
            (WorkerRegistry::HostLinks{{"h-w0", "h-w1"}, {"h-w1", "h-w0"}}));
  ASSERT_THAT(registry_.Get("w0")->failed_links, SizeIs(1));
  EXPECT_EQ(registry_.Get("w0")->failed_links[0].peer, "w1");
  EXPECT_EQ(registry_.Get("w1")->failed_links[0].peer, "w0");
  EXPECT_EQ(registry_.Get("w1")->failed_links[0].reason, "no bytes");
  EXPECT_EQ(registry_.Get("w1")->failed_links[0].time, clock_.Now());
  EXPECT_THAT(registry_.Get("w2")->failed_links, IsEmpty());
}

TEST_F(WorkerLinksTest, ItIsForgottenWhenItWorksAndAfterAWhile) {
  registry_.LinkFailed("w1", "w0", "no bytes");
  registry_.LinksWorked("w0", std::vector<std::string>{"w2", "w1"});
  EXPECT_THAT(registry_.FailedHostLinks(), IsEmpty());
  registry_.LinkFailed("w1", "w0", "no bytes");
  clock_.Advance(FailedLinks::kKeptFirst);
  EXPECT_THAT(registry_.FailedHostLinks(), IsEmpty());
  EXPECT_THAT(registry_.Get("w0")->failed_links, IsEmpty());
}

TEST_F(WorkerLinksTest, OfAWorkerThatIsGoneThereIsNone) {
  registry_.LinkFailed("w0", "nobody", "no bytes");
  registry_.LinkFailed("w0", "w1", "no bytes");
  registry_.SessionEnded("w1", sessions_[1], /*left=*/false);
  registry_.LinkFailed("w2", "w1", "no bytes");
  EXPECT_THAT(registry_.FailedHostLinks(), IsEmpty());
  EXPECT_THAT(registry_.Get("w0")->failed_links, IsEmpty());
  Join("w1", 2);
  EXPECT_THAT(registry_.FailedHostLinks(), IsEmpty());
}

TEST_F(WorkerLinksTest, AnotherProcessBeginsWithoutFailures) {
  registry_.LinkFailed("w0", "w1", "no bytes");
  registry_.StreamEnded("w1", sessions_[1]);
  Join("w1", 2);
  EXPECT_THAT(registry_.FailedHostLinks(), IsEmpty());
}

}  // namespace
}  // namespace crossmesh
