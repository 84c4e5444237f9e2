#include "common/mesh/device.h"

#include "common/testing/is_refused.h"
#include "common/testing/status_matchers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

TEST(DeviceTest, SplitsAtTheLastDot) {
  EXPECT_THAT(ParseDevice("node-a.lan.3"), IsOkAndHolds(DeviceId{"node-a.lan", 3}));
  EXPECT_THAT(ParseDevice("a.0-3.5"), IsOkAndHolds(DeviceId{"a.0-3", 5}));
  EXPECT_EQ(ToString(DeviceId{"node-a.lan", 3}), "node-a.lan.3");
}

TEST(DeviceTest, RefusesMalformedText) {
  for (const std::string& text :
       {std::string(), std::string("a"), std::string(".3"), std::string("a."), std::string("a.x"),
        std::string("a.1024"), std::string("a.99999999999999999999"), std::string("a.-1"),
        std::string("A.1"), std::string("a.1 b"), std::string(64, 'a') + ".1"}) {
    EXPECT_THAT(ParseDevice(text), IsRefused("device")) << text;
  }
  EXPECT_THAT(ParseDevice("a.0-3"), IsRefused("one device, not a run"));
}

TEST(DeviceTest, ValidatesNameAndIndex) {
  EXPECT_OK(Validate(DeviceId{"a", 1023}));
  EXPECT_THAT(Validate(DeviceId{"", 0}), IsRefused("host name"));
  EXPECT_THAT(Validate(DeviceId{"a b", 0}), IsRefused("a b"));
  EXPECT_THAT(Validate(DeviceId{"a", -1}), IsRefused("0 to 1023"));
  EXPECT_THAT(Validate(DeviceId{"a", 1024}), IsRefused("a.1024"));
}

}  // namespace
}  // namespace crossmesh
