#include "worker/gpu/protocol/gpu_message_codec.h"

#include "common/testing/status_matchers.h"

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <variant>
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

const CommunicatorKey kKey = {
    .ranks = {{.gpu = "GPU-a", .incarnation = 1}, {.gpu = "GPU-b", .incarnation = 7}},
    .purpose = "relay",
    .epoch = 4};
const TaskKey kTask = {.operation = 1, .epoch = 2, .plan = 3, .instance = 4};

GpuRequest::RunTask MakeRun() {
  return {.key = kTask,
          .part = {.high = 5, .low = 6},
          .checksums = false,
          .sources = {{.arena = ArenaId(2), .offset = 512}, {}},
          .destinations = {{}, {.arena = ArenaId(3), .offset = int64_t{1} << 40}},
          .communicator = kKey,
          .devices = {9, 4},
          .deadline = absl::Seconds(60),
          .stall_limit = absl::Milliseconds(1500)};
}

TaskReport MakeReport() {
  return {.key = kTask,
          .status = absl::CancelledError("enough"),
          .devices = {{.device = 4,
                       .status = absl::DataLossError("relay 3"),
                       .bytes = 100,
                       .digest = {.high = 1, .low = 2}}},
          .lost_peers = {"GPU-b"},
          .sent_bytes = 10,
          .received_bytes = 20,
          .copied_bytes = 30,
          .seconds = {.bind = 0.5, .move = 1.5, .pack = 0.25, .unpack = 0.125, .checksum = 2},
          .links = {{.peer = "GPU-b", .sent_bytes = 10, .busy_seconds = 0.75}}};
}

// What is read back is written as the same bytes, so nothing was lost that is written.
TEST(GpuMessageCodecTest, RequestsSurviveTheWire) {
  const std::vector<GpuRequest::Body> bodies = {
      GpuRequest::CreateArena{.arena = ArenaId(1), .bytes = ByteCount(int64_t{1} << 40)},
      GpuRequest::ImportArena{.arena = ArenaId(2), .bytes = ByteCount(0)},
      GpuRequest::ReleaseArena{.arena = ArenaId(3)},
      GpuRequest::MintCommunicatorId{},
      GpuRequest::CreateCommunicator{
          .key = kKey, .ticket = 3, .id = std::string("\0\xff", 2), .timeout = absl::Seconds(2)},
      GpuRequest::DestroyCommunicator{.key = kKey, .ticket = 4, .timeout = absl::Seconds(2)},
      GpuRequest::StopCommunicator{.key = kKey, .cause = absl::UnavailableError("GPU-b is lost")},
      GpuRequest::PreparePart{.digest = {.high = 1, .low = 2}, .part = "part"},
      MakeRun(),
      GpuRequest::CopyTiles{.key = kTask,
                            .direction = GpuRequest::CopyTiles::Direction::kStore,
                            .arena = ArenaId(3),
                            .ranges = {{0, 1}, {64, 100}, {164, int64_t{1} << 40}},
                            .checksums = false,
                            .deadline = absl::Seconds(60)},
      GpuRequest::CancelTask{.key = kTask, .cause = absl::CancelledError("caf\xc3")},
      GpuRequest::Ping{},
  };
  ASSERT_EQ(bodies.size(), std::variant_size_v<GpuRequest::Body>);
  for (size_t i = 0; i < bodies.size(); ++i) {
    const std::string bytes = Encode(GpuRequest{.id = 7, .body = bodies[i]});
    ASSERT_OK_AND_ASSIGN(const GpuRequest request, DecodeGpuRequest(bytes));
    EXPECT_EQ(request.id, 7U);
    EXPECT_EQ(request.body.index(), i) << NameOf(request.body);
    EXPECT_EQ(Encode(request), bytes) << NameOf(request.body);
  }
}

TEST(GpuMessageCodecTest, NoticesSurviveTheWire) {
  const std::vector<GpuNotice::Body> bodies = {
      GpuNotice::Hello{.preflight = {.rank = kKey.ranks[0],
                                     .nccl_version = 23007,
                                     .nccl_library = "NCCL 2.30.7",
                                     .driver_version = 13000,
                                     .environment = {{"NCCL_A", "1"}, {"NCCL_B", "\xff"}},
                                     .free_bytes = 1 << 30}},
      GpuNotice::Answer{.request = 1, .result = MakeReport()},
      GpuNotice::TaskProgress{.key = kTask, .moved_bytes = 77},
      GpuNotice::CommunicatorLost{.key = kKey, .cause = absl::UnavailableError("gone")},
      GpuNotice::LastWords{.cause = absl::InternalError("HUNG")},
      GpuNotice::Answer{.request = 2, .status = absl::NotFoundError("arena 3")},
      GpuNotice::Answer{.request = 3, .result = GpuNotice::MintedId{.id = std::string(128, '\0')}},
      GpuNotice::Answer{.request = 4, .result = GpuNotice::CommunicatorBytes{.bytes = 16 << 20}},
  };
  for (const GpuNotice::Body& body : bodies) {
    const std::string bytes = Encode(GpuNotice{.body = body});
    ASSERT_OK_AND_ASSIGN(const GpuNotice notice, DecodeGpuNotice(bytes));
    EXPECT_EQ(notice.body.index(), body.index());
    EXPECT_EQ(Encode(notice), bytes);
  }
}

TEST(GpuMessageCodecTest, ValuesComeAsTheyWereSent) {
  ASSERT_OK_AND_ASSIGN(const GpuRequest request,
                       DecodeGpuRequest(Encode(GpuRequest{.id = 1, .body = MakeRun()})));
  const auto& run = std::get<GpuRequest::RunTask>(request.body);
  EXPECT_EQ(run.key, kTask);
  EXPECT_EQ(run.communicator, kKey);
  EXPECT_EQ(run.sources, MakeRun().sources);
  EXPECT_THAT(run.devices, ElementsAre(9, 4));
  EXPECT_EQ(run.stall_limit, absl::Milliseconds(1500));

  const GpuNotice answer = {.body = GpuNotice::Answer{.request = 1, .result = MakeReport()}};
  ASSERT_OK_AND_ASSIGN(const GpuNotice notice, DecodeGpuNotice(Encode(answer)));
  const auto& report = std::get<TaskReport>(std::get<GpuNotice::Answer>(notice.body).result);
  EXPECT_THAT(report.status, StatusIs(absl::StatusCode::kCancelled, "enough"));
  EXPECT_THAT(report.devices[0].status, StatusIs(absl::StatusCode::kDataLoss, "relay 3"));
  EXPECT_EQ(report.seconds.unpack, 0.125);
}

TEST(GpuMessageCodecTest, NamesTheFieldThatIsWrong) {
  const auto error = [](GpuRequest::Body body, absl::string_view text, uint64_t id = 1) {
    EXPECT_THAT(DecodeGpuRequest(Encode(GpuRequest{.id = id, .body = std::move(body)})),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(std::string(text))));
  };
  error(GpuRequest::Ping{}, "id of a GPU message: expected a number from 1 on", 0);
  error(GpuRequest::CreateArena{.arena = ArenaId(0)}, "arena of a GPU message");
  error(GpuRequest::CreateArena{.arena = ArenaId(1), .bytes = ByteCount(-1)},
        "create_arena.size_bytes of a GPU message: expected at least 0, found -1");
  error(GpuRequest::CreateCommunicator{.key = kKey, .ticket = 0, .timeout = absl::Seconds(1)},
        "ticket");
  error(GpuRequest::CreateCommunicator{.key = kKey, .ticket = 1}, "create_communicator.timeout");
  error(GpuRequest::StopCommunicator{.key = {.purpose = "relay"}}, "communicator.ranks");
  error(GpuRequest::StopCommunicator{.key = {.ranks = {{}}, .purpose = "relay"}}, "rank.gpu");
  GpuRequest::RunTask run = MakeRun();
  run.devices.pop_back();
  error(run, "run_task.devices of a GPU message: expected 2, as of the communicator, found 1");
  run = MakeRun();
  run.sources[0].offset = -1;
  error(run, "tiles.offset_bytes");
  const auto copy = [](std::vector<GpuRequest::CopyTiles::Range> ranges) {
    return GpuRequest::CopyTiles{
        .arena = ArenaId(1), .ranges = std::move(ranges), .deadline = absl::Seconds(1)};
  };
  error(copy({{.offset = 0, .bytes = 8}, {.offset = 7, .bytes = 1}}),
        "copy_tiles.ranges.offset_bytes of a GPU message: expected at least 8, found 7");
  error(copy({{.offset = 0, .bytes = 0}}), "copy_tiles.ranges.size_bytes");
  error(copy({{.offset = 1, .bytes = std::numeric_limits<int64_t>::max()}}), "below 2^63");
  error(GpuRequest::CopyTiles{.deadline = absl::Seconds(1)}, "arena of a GPU message");
  error(GpuRequest::CopyTiles{.arena = ArenaId(1)}, "copy_tiles.deadline");
}

TEST(GpuMessageCodecTest, BytesThatAreNoMessageAreRefused) {
  for (const absl::string_view bytes : {"", "no message", "\x08\x01"}) {
    EXPECT_THAT(DecodeGpuRequest(bytes), StatusIs(absl::StatusCode::kInvalidArgument)) << bytes;
    EXPECT_THAT(DecodeGpuNotice(bytes), StatusIs(absl::StatusCode::kInvalidArgument)) << bytes;
  }
}

}  // namespace
}  // namespace crossmesh
