#include "worker/tasks/start_request.h"

#include "common/testing/is_refused.h"
#include "common/testing/status_matchers.h"
#include "common/wire/communicator_codec.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

v1::ExecuteRequest::Start Start() {
  v1::ExecuteRequest::Start start;
  start.set_token(std::string(16, 't'));
  start.set_part_digest(std::string(32, '0'));
  start.mutable_deadline()->set_seconds(60);
  start.mutable_stall_limit()->set_seconds(5);
  return start;
}

v1::ExecuteRequest::Start GpuStart() {
  v1::ExecuteRequest::Start start = Start();
  v1::ExecuteRequest::Communicator& communicator = *start.add_communicators();
  *communicator.mutable_key() = ToProto(
      CommunicatorKey{.ranks = {{"GPU-a", 1}, {"GPU-b", 7}}, .purpose = "relay", .epoch = 4});
  communicator.add_devices(3);
  communicator.add_devices(0);
  return start;
}

TEST(StartRequestTest, TheDevicesOfACommunicatorComeByRank) {
  ASSERT_OK_AND_ASSIGN(const StartRequest request, FromProto(GpuStart()));
  ASSERT_THAT(request.communicators, SizeIs(1));
  EXPECT_EQ(request.communicators[0].key.ToString(), "relay@4[GPU-a#1,GPU-b#7]");
  EXPECT_THAT(request.communicators[0].devices, ElementsAre(3, 0));
}

TEST(StartRequestTest, WithoutACommunicatorThereIsNone) {
  ASSERT_OK_AND_ASSIGN(const StartRequest request, FromProto(Start()));
  EXPECT_THAT(request.communicators, IsEmpty());
}

TEST(StartRequestTest, EveryRankHasADevice) {
  v1::ExecuteRequest::Start start = GpuStart();
  start.mutable_communicators(0)->add_devices(1);
  EXPECT_THAT(FromProto(start), StatusIs(absl::StatusCode::kInvalidArgument,
                                         HasSubstr("expected one for each of 2 ranks, found 3")));
}

TEST(StartRequestTest, ACommunicatorWithoutAKeyIsRefused) {
  v1::ExecuteRequest::Start start = GpuStart();
  start.mutable_communicators(0)->clear_key();
  EXPECT_THAT(FromProto(start),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("communicator.ranks")));
}

TEST(StartRequestTest, NamesMayHave256Bytes) {
  using Set = void (*)(v1::ExecuteRequest::Start&, const std::string&);
  struct Field {
    std::string name;
    Set set;
  };
  const std::vector<Field> fields = {
      {"operation_id", [](auto& start, const auto& text) { start.set_operation_id(text); }},
      {"source_storage", [](auto& start, const auto& text) { start.set_source_storage(text); }},
      {"destination_storage",
       [](auto& start, const auto& text) { start.set_destination_storage(text); }},
      {"peers.worker", [](auto& start, const auto& text) { start.add_peers()->set_worker(text); }},
  };
  for (const Field& field : fields) {
    v1::ExecuteRequest::Start start = Start();
    field.set(start, std::string(256, 'x'));
    EXPECT_OK(FromProto(start)) << field.name;
    start = Start();
    field.set(start, std::string(257, 'x'));
    EXPECT_THAT(FromProto(start),
                IsRefused("start." + field.name + ": expected at most 256 bytes, found 257"));
  }
}

TEST(StartRequestTest, ADataAddressMayHave4Kilobytes) {
  v1::ExecuteRequest::Start start = Start();
  start.add_peers()->set_data_address(std::string(4096, 'x'));
  EXPECT_OK(FromProto(start));
  start.mutable_peers(0)->set_data_address(std::string(4097, 'x'));
  EXPECT_THAT(FromProto(start), IsRefused("expected at most 4096 bytes, found 4097"));
}

TEST(StartRequestTest, AnotherCommunicatorIsOtherWork) {
  ASSERT_OK_AND_ASSIGN(const StartRequest request, FromProto(GpuStart()));
  ASSERT_OK_AND_ASSIGN(const StartRequest other, FromProto(Start()));
  EXPECT_TRUE(request.SameWork(request));
  EXPECT_FALSE(request.SameWork(other));
}

}  // namespace
}  // namespace crossmesh
