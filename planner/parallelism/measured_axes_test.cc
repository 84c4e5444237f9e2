#include "planner/parallelism/measured_axes.h"

#include "common/mesh/mesh.h"
#include "common/testing/status_matchers.h"

#include <functional>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;

MeasuredAxes EightDevices() {
  return *MeasuredAxes::Create(
      *ParseDevices("a.0-3,b.0-3"),
      {{.position = {4, 2}, .seconds_per_message = 2e-6, .bytes_per_second = 3e9},
       {.position = {1, 4}, .seconds_per_message = 0, .bytes_per_second = 40e9}});
}

TEST(MeasuredAxesTest, AreReadAsTheyWereWrittenInOrder) {
  const MeasuredAxes axes = EightDevices();
  EXPECT_EQ(axes.positions().front().position, (AxisPosition{1, 4}));
  ASSERT_OK_AND_ASSIGN(const MeasuredAxes read, FromProto(ToProto(axes)));
  EXPECT_EQ(read, axes);
  ASSERT_OK_AND_ASSIGN(const std::vector<MeasuredPosition> positions,
                       ParseMeasuredPositions("rates.json", ToRatesFile(axes)));
  EXPECT_EQ(positions, axes.positions());
}

TEST(MeasuredAxesTest, NewerOnesTakeThePlaceOfThoseOfTheSamePosition) {
  const std::vector<MeasuredPosition> newer = {
      {.position = {4, 2}, .seconds_per_message = 0, .bytes_per_second = 5e9},
      {.position = {1, 8}, .seconds_per_message = 0, .bytes_per_second = 6e9}};
  ASSERT_OK_AND_ASSIGN(const MeasuredAxes axes, EightDevices().With(newer));
  ASSERT_EQ(axes.positions().size(), 3);
  EXPECT_EQ(axes.positions()[0].bytes_per_second, 40e9);  // 1, 4
  EXPECT_EQ(axes.positions()[1], newer[1]);               // 1, 8
  EXPECT_EQ(axes.positions()[2], newer[0]);               // 4, 2
}

TEST(MeasuredAxesTest, WhatCannotBeIsNamed) {
  struct Case {
    std::string expected;
    std::function<void(v1::MeasuredAxes&)> spoil;
  };
  const std::vector<Case> cases = {
      {"devices: ", [](v1::MeasuredAxes& m) { m.set_devices("a.x"); }},
      {"expected each device once", [](v1::MeasuredAxes& m) { m.set_devices("a.0,a.0"); }},
      {"at least two devices and a position, found 1 and 2",
       [](v1::MeasuredAxes& m) { m.set_devices("a.0"); }},
      {"at least two devices and a position, found 8 and 0",
       [](v1::MeasuredAxes& m) { m.clear_positions(); }},
      {"inner 3, own 4: expected sizes whose product divides the 8 devices",
       [](v1::MeasuredAxes& m) { m.mutable_positions(0)->set_inner(3); }},
      {"inner 4, own 2: expected it once",
       [](v1::MeasuredAxes& m) { *m.add_positions() = m.positions(1); }},
      {"inner 1, own 4: bytes per second: expected from 1 to 1125899906842624, found 0",
       [](v1::MeasuredAxes& m) { m.mutable_positions(0)->set_bytes_per_second(0); }},
      {"ns of a message: expected from 0 to 1000000000, found -1",
       [](v1::MeasuredAxes& m) { m.mutable_positions(0)->set_message_ns(-1); }}};
  for (const Case& c : cases) {
    v1::MeasuredAxes proto = ToProto(EightDevices());
    c.spoil(proto);
    EXPECT_THAT(FromProto(proto).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(c.expected)));
  }
}

}  // namespace
}  // namespace crossmesh
