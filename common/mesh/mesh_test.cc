#include "common/mesh/mesh.h"

#include "common/testing/is_refused.h"
#include "common/testing/status_matchers.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

TEST(MeshTest, NumbersSlotsRowMajor) {
  ASSERT_OK_AND_ASSIGN(const Mesh mesh, ParseMesh("data=2,model=2 on a.0-1,b.0-1"));
  EXPECT_EQ(mesh.slots(), 4);
  EXPECT_EQ(mesh.Coordinate(2, 0), 1);
  EXPECT_EQ(mesh.Coordinate(2, 1), 0);
  EXPECT_EQ(ToString(mesh.devices()[2]), "b.0");
  EXPECT_EQ(mesh.FindAxis("model"), 1);
  EXPECT_EQ(mesh.FindAxis("expert"), std::nullopt);
}

TEST(MeshTest, SelectsSubMeshes) {
  ASSERT_OK_AND_ASSIGN(const Mesh mesh, ParseMesh("stage=2,data=2,model=2 on a.0-7"));
  EXPECT_EQ(ToString(*mesh.Select(Coordinates{{"data", 1}})), "stage=2,model=2 on a.2-3,a.6-7");
  EXPECT_EQ(ToString(*mesh.Select(Coordinates{{"model", 1}, {"stage", 0}})), "data=2 on a.1,a.3");
  EXPECT_EQ(ToString(*mesh.Select(Coordinates{{"stage", 1}, {"data", 0}, {"model", 1}})), "on a.5");
  EXPECT_THAT(mesh.Select({}), IsOkAndHolds(mesh));
  EXPECT_THAT(mesh.Select(Coordinates{{"x", 0}}), IsRefused("no axis x"));
  EXPECT_THAT(mesh.Select(Coordinates{{"data", 2}}), IsRefused("0 to 1"));
  EXPECT_THAT(mesh.Select(Coordinates{{"data", -1}}), IsRefused("data=-1"));
  EXPECT_THAT(mesh.Select(Coordinates{{"data", 0}, {"data", 0}}), IsRefused("twice"));
}

TEST(MeshTest, RefusesWhatDoesNotFit) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"data=2 on a.0,a.0", "device a.0 is in slots 0 and 1"},
      {"data=2,data=1 on a.0-1", "axis data is named twice"},
      {"data=3 on a.0-1", "expected 3 devices, one per slot, found 2"},
      {"data=0 on a.0", "at least 1 for axis data, found 0"},
      {"x=65537 on a.0", "at most 65536 slots"},
      {"x=4611686018427387904,y=4611686018427387904 on a.0", "more than 2^63"}};
  for (const auto& [text, message] : cases) {
    EXPECT_THAT(ParseMesh(text), IsRefused(message)) << text;
  }
  EXPECT_THAT(Mesh::Create({{"Data", 1}}, {{"a", 0}}), IsRefused("Data"));
  EXPECT_THAT(Mesh::Create({}, {{"a", 5000}}), IsRefused("a.5000"));
  EXPECT_THAT(Mesh::Create(std::vector<Axis>(33, Axis{"x", 1}), {{"a", 0}}), IsRefused("32 axes"));
}

TEST(MeshTest, RefusesMalformedText) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "axis name"},
      {"data=2", "column 7: expected \",\" or \"on\", found the end"},
      {"data on a.0", "expected \"=\", found \"on\""},
      {"data=2 on", "a device HOST.INDEX"},
      {"data=2 on a.3-0", "run FIRST-LAST"},
      {"data=2 on a.0-1 b", "expected the end"},
      {"d\xff=2 on a.0", "\\xff"}};
  for (const auto& [text, message] : cases) {
    EXPECT_THAT(ParseMesh(text), IsRefused(message)) << text;
  }
}

TEST(MeshTest, AnAxisMayBeNamedOn) {
  ASSERT_OK_AND_ASSIGN(const Mesh mesh, ParseMesh("on=2 on a.0-1"));
  EXPECT_EQ(mesh.axes()[0].name, "on");
  EXPECT_EQ(ToString(mesh), "on=2 on a.0-1");
}

TEST(MeshTest, JoinsRunsOfDevices) {
  ASSERT_OK_AND_ASSIGN(const std::vector<DeviceId> devices, ParseDevices("a.0,a.1,a.3,b.4,a.4-5"));
  EXPECT_EQ(DevicesToString(devices), "a.0-1,a.3,b.4,a.4-5");
  EXPECT_THAT(ParseDevices(""), IsOkAndHolds(std::vector<DeviceId>{}));
}

TEST(MeshTest, RefusesTextsThatExpandToTooManyDevices) {
  std::string text = "a.0-1023";
  for (int i = 0; i < 64; ++i) text += ",a.0-1023";
  EXPECT_THAT(ParseDevices(text), IsRefused("at most 65536 devices"));
}

TEST(MeshTest, ParsesAxesAndCoordinates) {
  EXPECT_THAT(ParseAxes(""), IsOkAndHolds(std::vector<Axis>{}));
  EXPECT_THAT(ParseAxes("data=4, model=2"),
              IsOkAndHolds(std::vector<Axis>{{"data", 4}, {"model", 2}}));
  EXPECT_THAT(ParseCoordinates("stage=1,expert=3"),
              IsOkAndHolds(Coordinates{{"stage", 1}, {"expert", 3}}));
  EXPECT_THAT(ParseCoordinates("stage=x"), IsRefused("column 7"));
}

}  // namespace
}  // namespace crossmesh
