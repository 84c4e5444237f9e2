#include "worker/wire/task_report_codec.h"

#include "common/testing/status_matchers.h"

#include <string>

#include <absl/status/status.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

DeviceReport MakeDevice() {
  return {.device = 4,
          .status = absl::DataLossError("relay 3"),
          .bytes = 100,
          .digest = {.high = 1, .low = 2}};
}

TaskReport MakeReport() {
  return {.status = absl::CancelledError("enough"),
          .lost_peers = {"node-b"},
          .sent_bytes = 10,
          .received_bytes = 20,
          .copied_bytes = 30,
          .seconds = {.bind = 0.5, .move = 1.5, .pack = 0.25, .unpack = 0.125, .checksum = 2},
          .links = {{.peer = "node-b", .sent_bytes = 10, .busy_seconds = 0.75}},
          .broken_devices = {3}};
}

TEST(TaskReportCodecTest, ADeviceSurvivesTheWire) {
  ASSERT_OK_AND_ASSIGN(const DeviceReport device, FromProto(ToProto(MakeDevice())));
  EXPECT_EQ(device.device, 4);
  EXPECT_THAT(device.status, StatusIs(absl::StatusCode::kDataLoss, "relay 3"));
  EXPECT_EQ(device.bytes, 100);
  EXPECT_EQ(device.digest, MakeDevice().digest);
}

// What is read back is written as the same bytes, so nothing was lost that is written.
TEST(TaskReportCodecTest, AReportSurvivesTheWire) {
  const v1::TaskReport proto = ToProto(MakeReport());
  const TaskReport report = FromProto(proto);
  EXPECT_EQ(ToProto(report).SerializeAsString(), proto.SerializeAsString());
  EXPECT_THAT(report.status, StatusIs(absl::StatusCode::kCancelled, "enough"));
  EXPECT_THAT(report.lost_peers, ElementsAre("node-b"));
  EXPECT_EQ(report.copied_bytes, 30);
  EXPECT_EQ(report.seconds.unpack, 0.125);
  EXPECT_EQ(report.links.at(0).busy_seconds, 0.75);
  EXPECT_THAT(report.broken_devices, ElementsAre(3));
}

// Else its receiver takes the whole message for malformed.
TEST(TaskReportCodecTest, TextsThatAreNotUtf8AreMadeSo) {
  DeviceReport device = MakeDevice();
  device.status = absl::InternalError("caf\xc3");
  EXPECT_EQ(ToProto(device).message(), "caf?");
  TaskReport report = MakeReport();
  report.status = device.status;
  EXPECT_EQ(ToProto(report).message(), "caf?");
}

TEST(TaskReportCodecTest, NamesTheFieldThatIsWrong) {
  v1::ExecuteResponse::DeviceDone proto = ToProto(MakeDevice());
  proto.set_size_bytes(-1);
  EXPECT_THAT(FromProto(proto),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("size_bytes of device 4: expected at least 0, found -1")));
  proto.set_size_bytes(0);
  proto.set_digest("12");
  EXPECT_THAT(FromProto(proto), StatusIs(absl::StatusCode::kInvalidArgument,
                                         HasSubstr("digest of device 4: expected 32 hex")));
}

}  // namespace
}  // namespace crossmesh
