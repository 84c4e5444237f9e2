#include "planner/parallelism/programs/axis_trial.h"

#include "common/mesh/box.h"
#include "common/mesh/layout.h"
#include "common/mesh/mesh.h"
#include "common/testing/status_matchers.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

std::vector<DeviceId> Devices(int64_t count) {
  return *ParseDevices(absl::StrCat("a.0-", count - 1));
}

// Rows of a gathered tensor, and bytes of them, that a tile has: [group's rows][from, to).
using Bytes = std::set<std::pair<std::string, int64_t>>;

// In units of so many bytes, which tiles have whole.
Bytes BytesOf(const Tile& tile, int64_t unit) {
  Bytes bytes;
  for (const Box& box : tile) {
    EXPECT_EQ(box[0].length() * box[1].length(), 1) << "a row of a group";
    EXPECT_EQ(box[2].begin % unit + box[2].end % unit, 0);
    for (int64_t at = box[2].begin; at < box[2].end; at += unit) {
      bytes.emplace(absl::StrCat(box[0].begin, " ", box[1].begin), at);
    }
  }
  return bytes;
}

// By the plainest rule: devices of a group differ in one digit of their place.
void ExpectGathersOfGroups(const AxisTrial& trial, int64_t devices,
                           const LayerProgram::Transfer& transfer) {
  const Mesh& mesh = *trial.program.ranks[0].mesh;
  const LayerProgram::Tensor& tensor = transfer.tensors.front();
  const auto [inner, own] = trial.position;
  const std::vector<Tile> before = tensor.source.Tiles(mesh, tensor.tensor.shape);
  const std::vector<Tile> after = tensor.destination.Tiles(mesh, tensor.tensor.shape);
  std::map<std::pair<int64_t, int64_t>, Bytes> of_group;
  size_t pieces = 0;
  for (int64_t slot = 0; slot < devices; ++slot) {
    const Bytes piece = BytesOf(before[slot], 64);
    pieces += piece.size();
    of_group[{slot / (inner * own), slot % inner}].insert(piece.begin(), piece.end());
  }
  ASSERT_EQ(static_cast<int64_t>(of_group.size()), devices / own);
  size_t all = 0;
  for (const auto& [group, bytes] : of_group) all += bytes.size();
  EXPECT_EQ(all, pieces) << "no two devices have the same before";
  for (int64_t slot = 0; slot < devices; ++slot) {
    const Bytes& whole = of_group[std::pair(slot / (inner * own), slot % inner)];
    EXPECT_EQ(BytesOf(after[slot], 64), whole);
  }
}

TEST(AxisTrialTest, EveryGroupOfEveryPositionGathersItsOwn) {
  for (const int64_t devices : {2, 3, 4, 6, 8, 12}) {
    for (const AxisPosition& position : PositionRates::PositionsOf(devices)) {
      SCOPED_TRACE(absl::StrCat(devices, ": ", position.inner, ", ", position.own));
      ASSERT_OK_AND_ASSIGN(const AxisTrial trial, MakeAxisTrial(Devices(devices), position, 5000));
      ASSERT_OK(Validate(trial.program));
      EXPECT_THAT(trial.program.name, MatchesRegex("[a-z0-9._-]+"));
      EXPECT_GE(trial.large_bytes, 5000);
      EXPECT_LT(trial.small_bytes, trial.large_bytes);
      EXPECT_EQ(trial.program.ranks[0].mesh->devices(), Devices(devices));
      int gathers = 0;
      for (const LayerProgram::Transfer& transfer : trial.program.transfers) {
        if (transfer.name == "meet") {
          EXPECT_EQ(transfer.messages.size(), 2 * AxisTrial::kMessages);
          continue;
        }
        ++gathers;
        EXPECT_EQ(transfer.tensors.front().tensor.shape[2],
                  transfer.name == kSmallGather ? trial.small_bytes : trial.large_bytes);
        EXPECT_EQ(transfer.messages.size(), AxisTrial::kMessages);
        ExpectGathersOfGroups(trial, devices, transfer);
      }
      EXPECT_EQ(gathers, 2);
    }
  }
}

// Nothing else moves beside a gather, and all have met before it.
TEST(AxisTrialTest, GathersAreOneAfterTheOther) {
  ASSERT_OK_AND_ASSIGN(const AxisTrial trial, MakeAxisTrial(Devices(8), {2, 2}, 1 << 20));
  std::vector<LayerProgram::Message> messages;
  for (const LayerProgram::Transfer& transfer : trial.program.transfers) {
    messages.insert(messages.end(), transfer.messages.begin(), transfer.messages.end());
  }
  std::ranges::sort(messages, {}, &LayerProgram::Message::producer);
  for (size_t i = 0; i < messages.size(); ++i) {
    EXPECT_EQ(messages[i].producer, static_cast<int32_t>(i));
    EXPECT_EQ(messages[i].consumer, static_cast<int32_t>(i) + 1);
  }
  EXPECT_EQ(messages.size() + 1, trial.program.ops.size());
}

TEST(AxisTrialTest, TheRingThatIsFoundTakesWhatWasMeasured) {
  ASSERT_OK_AND_ASSIGN(const AxisTrial trial, MakeAxisTrial(Devices(8), {2, 4}, 1 << 20));
  const RateLevel level{.size = 4, .seconds_per_message = 3e-5, .bytes_per_second = 2e9};
  const AxisRate ring(std::span(&level, 1), 0, RateSource::kMeasured);
  const auto seconds = [&ring](int64_t bytes) {
    return ring.Seconds(CollectiveOp::kAllGather, static_cast<double>(bytes));
  };
  ASSERT_OK_AND_ASSIGN(const MeasuredPosition found,
                       FitPosition(trial, seconds(trial.small_bytes), seconds(trial.large_bytes)));
  EXPECT_EQ(found.position, (AxisPosition{2, 4}));
  EXPECT_NEAR(found.bytes_per_second, 2e9, 1);
  EXPECT_NEAR(found.seconds_per_message, 3e-5, 1e-12);
  // Where only bytes take time, messages take none, and not less.
  ASSERT_OK_AND_ASSIGN(const MeasuredPosition steep, FitPosition(trial, 1e-6, 1e-3));
  EXPECT_EQ(steep.seconds_per_message, 0);
}

TEST(AxisTrialTest, WhatCannotBeMeasuredIsNamed) {
  EXPECT_THAT(MakeAxisTrial(Devices(1), {1, 1}, 1 << 20).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("at least two, found 1")));
  EXPECT_THAT(MakeAxisTrial(Devices(6), {1, 4}, 1 << 20).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("inner 1, own 4: expected sizes whose product divides the 6")));
  EXPECT_THAT(MakeAxisTrial(Devices(4), {1, 2}, 4095).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("found 4095")));
  ASSERT_OK_AND_ASSIGN(const AxisTrial trial, MakeAxisTrial(Devices(4), {1, 2}, 1 << 20));
  EXPECT_THAT(FitPosition(trial, 2e-3, 1e-3).status(),
              StatusIs(absl::StatusCode::kOutOfRange,
                       HasSubstr("inner 1, own 2: expected 1048576 bytes to take longer than "
                                 "65536, found 1.00 ms and 2.00 ms")));
}

}  // namespace
}  // namespace crossmesh
