#include "common/rpc/controller_route.h"

#include "common/rpc/not_leader.h"
#include "common/rpc/status_codec.h"

#include <optional>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

const std::vector<std::string> kAddresses = {"a:1", "b:1", "c:1"};

absl::Status Away() { return absl::UnavailableError("away"); }

TEST(ControllerRouteTest, StaysWithOneThatAnswers) {
  ControllerRoute route(kAddresses);
  for (const absl::Status& answer :
       {absl::OkStatus(), absl::NotFoundError("x"), absl::AlreadyExistsError("x"),
        absl::FailedPreconditionError("x"), absl::AbortedError("x")}) {
    route.Ended("a:1", answer);
    EXPECT_EQ(route.current(), "a:1") << answer;
  }
}

TEST(ControllerRouteTest, GoesAroundTheListWhileNoneAnswers) {
  ControllerRoute route(kAddresses);
  std::string asked;
  for (int i = 0; i < 7; ++i) {
    absl::StrAppend(&asked, route.current().substr(0, 1));
    route.Ended(route.current(), i % 2 == 0 ? Away() : absl::CancelledError("x"));
  }
  EXPECT_EQ(asked, "abcabca");
}

TEST(ControllerRouteTest, GoesToTheLeaderAndOnFromThere) {
  ControllerRoute route(kAddresses);
  route.Ended("a:1", NotLeaderError("c:1"));
  EXPECT_EQ(route.current(), "c:1");
  route.Ended("c:1", Away());
  EXPECT_EQ(route.current(), "a:1");
}

TEST(ControllerRouteTest, ALeaderMayBeNoneOfTheListAndIsLeftForIt) {
  ControllerRoute route(kAddresses);
  route.Ended("a:1", NotLeaderError("d:1"));
  EXPECT_EQ(route.current(), "d:1");
  route.Ended("d:1", absl::DeadlineExceededError("late"));
  EXPECT_EQ(route.current(), "b:1");
}

TEST(ControllerRouteTest, OneThatNamesItselfNoneOrNonsenseIsLeftForTheNext) {
  for (const std::optional<std::string>& leader : std::vector<std::optional<std::string>>{
           std::nullopt, "a:1", "", "not an address", "unix:relative"}) {
    ControllerRoute route(kAddresses);
    route.Ended("a:1", NotLeaderError(leader));
    EXPECT_EQ(route.current(), "b:1") << leader.value_or("none");
  }
}

TEST(ControllerRouteTest, NewsOfOneThatIsNotAskedAnyMoreAreOld) {
  ControllerRoute route(kAddresses);
  route.Ended("a:1", Away());
  route.Ended("a:1", NotLeaderError("c:1"));
  EXPECT_EQ(route.current(), "b:1");
}

TEST(NotLeaderTest, TheLeaderTravelsOverGrpc) {
  const absl::Status sent = NotLeaderError("unix:/run/b.sock");
  const absl::Status received = FromGrpcStatus(ToGrpcStatus(sent));
  EXPECT_EQ(received.code(), sent.code());
  EXPECT_EQ(LeaderNamedBy(received), "unix:/run/b.sock");
  EXPECT_EQ(received.message(),
            "controller: expected the one that leads, found one that stands by; the leader is at "
            "unix:/run/b.sock");
}

TEST(NotLeaderTest, OtherErrorsNameNone) {
  EXPECT_EQ(LeaderNamedBy(NotLeaderError(std::nullopt)), std::nullopt);
  EXPECT_EQ(LeaderNamedBy(absl::UnavailableError("leader: expected b:1, found none")),
            std::nullopt);
  EXPECT_EQ(LeaderNamedBy(absl::OkStatus()), std::nullopt);
}

}  // namespace
}  // namespace crossmesh
