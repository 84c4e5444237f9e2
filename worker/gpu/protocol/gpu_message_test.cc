#include "worker/gpu/protocol/gpu_message.h"

#include "common/testing/status_matchers.h"

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/string_view.h>
#include <absl/time/time.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

const TaskKey kTask = {.operation = 1, .epoch = 2, .plan = 3, .instance = 4};

auto IsMalformed(absl::string_view text) {
  return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(std::string(text)));
}

TEST(GpuMessageTest, BytesThatAreNoMessageAreRefused) {
  for (const absl::string_view bytes : {"", "no message", "\x08\x01"}) {
    EXPECT_THAT(ParseGpuRequest(bytes), StatusIs(absl::StatusCode::kInvalidArgument)) << bytes;
    EXPECT_THAT(ParseGpuNotice(bytes), StatusIs(absl::StatusCode::kInvalidArgument)) << bytes;
  }
}

TEST(GpuMessageTest, ARequestHasAnId) {
  v1::GpuRequest request;
  request.mutable_ping();
  EXPECT_THAT(ParseGpuRequest(request.SerializeAsString()),
              IsMalformed("id of a GPU message: expected a number from 1 on"));
  request.set_id(7);
  ASSERT_OK_AND_ASSIGN(const v1::GpuRequest parsed, ParseGpuRequest(request.SerializeAsString()));
  EXPECT_EQ(parsed.id(), 7U);
  EXPECT_EQ(NameOf(parsed), "ping");
  EXPECT_EQ(NameOf(v1::GpuRequest()), "nothing");
}

TEST(GpuMessageTest, NumbersAndTimesHaveTheirRanges) {
  EXPECT_THAT(ParseArena(0), IsMalformed("arena of a GPU message"));
  EXPECT_THAT(ParseArena(3), IsOkAndHolds(ArenaId(3)));
  EXPECT_THAT(ParseTicket(0), IsMalformed("ticket of a GPU message"));
  EXPECT_THAT(
      CheckNumber("create_arena.size_bytes", -1, 0),
      IsMalformed("create_arena.size_bytes of a GPU message: expected at least 0, found -1"));
  google::protobuf::Duration limit;
  EXPECT_THAT(ParseLimit("timeout", limit), IsMalformed("timeout"));
  limit.set_seconds(86'401);
  EXPECT_THAT(ParseLimit("timeout", limit), IsMalformed("timeout"));
  limit.set_seconds(2);
  EXPECT_THAT(ParseLimit("timeout", limit), IsOkAndHolds(absl::Seconds(2)));
  EXPECT_THAT(ParseDigest("digest", "0123"), IsMalformed("expected 32 hexadecimal digits"));
}

TEST(GpuMessageTest, StatusesKeepTheirTextsAndCausesAreErrors) {
  const absl::Status status = absl::CancelledError("caf\xc3");
  EXPECT_EQ(FromProto(ToProto(status)), status);
  EXPECT_EQ(CauseFromProto(ToProto(status)), status);
  EXPECT_THAT(CauseFromProto({}), StatusIs(absl::StatusCode::kUnknown));
}

TEST(GpuMessageTest, TilesComeAsTheyWereSent) {
  const std::vector<TilePlace> places = {
      {.arena = ArenaId(2), .offset = 512}, {}, {.arena = ArenaId(3), .offset = int64_t{1} << 40}};
  v1::GpuRequest::Tiles tiles = ToProto(places);
  EXPECT_THAT(FromProto(tiles), IsOkAndHolds(places));
  tiles.set_offset_bytes(0, -1);
  EXPECT_THAT(FromProto(tiles), IsMalformed("tiles.offset_bytes"));
  tiles.add_arena(1);
  EXPECT_THAT(FromProto(tiles), IsMalformed("expected 4 offsets, as of arenas, found 3"));
}

TEST(GpuMessageTest, RangesAscendAndAreApart) {
  const auto ranges_of = [](const std::vector<TileRange>& ranges) {
    v1::GpuRequest::CopyTiles copy;
    for (const TileRange& range : ranges) {
      copy.add_ranges()->set_offset_bytes(range.offset);
      copy.mutable_ranges()->rbegin()->set_size_bytes(range.bytes);
    }
    return RangesOf(copy);
  };
  const std::vector<TileRange> good = {{0, 1}, {64, 100}, {164, int64_t{1} << 40}};
  EXPECT_THAT(ranges_of(good), IsOkAndHolds(good));
  EXPECT_THAT(
      ranges_of({{0, 8}, {7, 1}}),
      IsMalformed("copy_tiles.ranges.offset_bytes of a GPU message: expected at least 8, found 7"));
  EXPECT_THAT(ranges_of({{0, 0}}), IsMalformed("copy_tiles.ranges.size_bytes"));
  EXPECT_THAT(ranges_of({{1, std::numeric_limits<int64_t>::max()}}), IsMalformed("below 2^63"));
}

TEST(GpuMessageTest, ReportsComeAsTheyWereSent) {
  const TaskReport report = {
      .key = kTask,
      .status = absl::CancelledError("enough"),
      .devices = {{.device = 4,
                   .status = absl::DataLossError("relay 3"),
                   .bytes = 100,
                   .digest = {.high = 1, .low = 2}}},
      .lost_peers = {"GPU-b"},
      .seconds = {.bind = 0.5, .move = 1.5, .pack = 0.25, .unpack = 0.125, .checksum = 2},
      .links = {{.peer = "GPU-b", .sent_bytes = 10, .busy_seconds = 0.75}}};
  v1::GpuNotice::TaskReport proto = ReportToProto(report);
  ASSERT_OK_AND_ASSIGN(const TaskReport found, ReportFromProto(proto));
  EXPECT_EQ(found.key, kTask);
  EXPECT_THAT(found.status, StatusIs(absl::StatusCode::kCancelled, "enough"));
  ASSERT_THAT(found.devices, SizeIs(1));
  EXPECT_THAT(found.devices[0].status, StatusIs(absl::StatusCode::kDataLoss, "relay 3"));
  EXPECT_THAT(found.lost_peers, ElementsAre("GPU-b"));
  EXPECT_EQ(found.seconds.unpack, 0.125);
  proto.mutable_devices(0)->set_digest("none");
  EXPECT_THAT(ReportFromProto(proto), StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace crossmesh
