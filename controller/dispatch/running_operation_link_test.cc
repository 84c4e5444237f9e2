// Operations of which workers say that no bytes get through between two of them.

#include "controller/dispatch/testing/running_operation_fixture.h"

#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/time/time.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::Contains;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

class FailedLinkTest : public RunningOperationTest {
 protected:
  // Worker c blames the source of its bytes; all others but that one do their part.
  void BlameTheRoot() {
    Start(Request("op-1"));
    const std::vector<std::string> hosts = Hosts();
    AcceptAll();
    root_ = Called("a") ? "a" : "b";
    other_ = root_ == "a" ? "b" : "a";
    FailAsUnavailable("c", root_);
    for (const std::string& host : hosts) {
      if (host != root_ && host != "c") Succeed(host);
    }
    Resolve("d");
  }

  std::string root_;
  std::string other_;
};

TEST_F(FailedLinkTest, WhatDidNotComeOverItComesFromTheOtherSource) {
  BlameTheRoot();
  At(root_).Report(absl::OkStatus(), {"w-c"});
  Run();
  Resolve("c");
  ASSERT_EQ(gateway_.calls.back()->start.attempt(), 2);
  EXPECT_THAT(Hosts(), UnorderedElementsAre(other_, "c"));
  FinishAll("op-1", {"c"});
}

TEST_F(FailedLinkTest, OneThatIsBlamedAndStaysSilentIsGivenUp) {
  BlameTheRoot();
  Resolve("c");
  EXPECT_EQ(Latest("op-1").attempt(), 1);
  Advance(absl::Seconds(1));
  Resolve("c");
  EXPECT_EQ(Latest("op-1").attempt(), 2);
  EXPECT_THAT(Hosts(), Not(Contains(root_)));
}

}  // namespace
}  // namespace crossmesh
