// Axes that are to be measured, as a user names them: what is wrong is said before anything is
// asked of a cluster.

#include "client/cli/network_axes.h"

#include "client/cli/testing/program_run.h"
#include "crossmesh/v1/network_service.pb.h"

#include <string>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

std::string MeasureError(const std::string& flags) {
  const ProgramResult result = Crossmesh(absl::StrCat("network measure ", flags));
  EXPECT_NE(result.exit_status, 0);
  EXPECT_EQ(result.out, "");
  return result.error;
}

TEST(NetworkAxesTest, AxesThatCannotBeMeasuredAreNamed) {
  EXPECT_THAT(MeasureError("--mesh 'data=2,model=2 on a.0-3' --axes model,q"),
              HasSubstr("--axes: expected axes of mesh data=2,model=2, found q"));
  EXPECT_THAT(MeasureError("--mesh 'data=1,model=4 on a.0-3' --axes data"),
              HasSubstr("expected axes of at least two devices, found data=1"));
  EXPECT_THAT(MeasureError("--mesh 'data=1 on a.0'"),
              HasSubstr("--mesh: expected at least two devices, found 1"));
  EXPECT_THAT(MeasureError("--mesh 'data=3 on a.0-3'"), HasSubstr("--mesh: "));
  EXPECT_THAT(MeasureError("--axes data"), HasSubstr("expected --mesh, whose axes they are"));
}

TEST(NetworkAxesTest, EveryPositionHasItsSource) {
  v1::Network network;
  EXPECT_EQ(AxesText(network), "");
  v1::MeasuredAxes& axes = *network.mutable_axes();
  network.mutable_topology()->set_assumed_bytes_per_second(12'500'000'000);
  axes.set_devices("a.0-1,b.0-1");
  v1::MeasuredAxes::Position& position = *axes.add_positions();
  position.set_inner(2);
  position.set_own(2);
  position.set_bytes_per_second(3'000'000'000);
  position.set_message_ns(20'000);
  const std::string text = AxesText(network);
  EXPECT_THAT(text, HasSubstr("Axes over a.0-1,b.0-1:"));
  EXPECT_THAT(text, ContainsRegex("2 +2 +2 +3\\.0 GB/s +20\\.0 us +measured +6\\.2 GB/s"));
  EXPECT_THAT(text, ContainsRegex("1 +4 +1 +8\\.3 GB/s +- +described +8\\.3 GB/s"));
}

}  // namespace
}  // namespace crossmesh
