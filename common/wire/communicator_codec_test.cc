#include "common/wire/communicator_codec.h"

#include "common/testing/is_refused.h"
#include "common/testing/status_matchers.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

CommunicatorKey Key() {
  return {.ranks = {{"GPU-a", 1}, {"GPU-b", 7}}, .purpose = "relay", .epoch = 4};
}

PreflightReport Report() {
  return {.rank = {"GPU-a", 1},
          .nccl_version = 23007,
          .nccl_library = "NCCL 2.30.7, /lib/\xff",
          .driver_version = 13000,
          .environment = {{"CUDA_VISIBLE_DEVICES", "3"}, {"NCCL_DEBUG", "\xfe"}},
          .free_bytes = int64_t{140} << 30,
          .communicators = {{3, int64_t{1} << 31}, {8, 0}}};
}

template <typename Value>
void ExpectRefused(const Value& proto, const std::string& why) {
  EXPECT_THAT(FromProto(proto), IsRefused(why));
}

TEST(CommunicatorCodecTest, AKeyComesBackAsItWas) {
  EXPECT_THAT(FromProto(ToProto(Key())), IsOkAndHolds(Key()));
}

TEST(CommunicatorCodecTest, AReportComesBackAsItWas) {
  std::string bytes = ToProto(Report()).SerializeAsString();
  v1::PreflightReport read;
  ASSERT_TRUE(read.ParseFromString(bytes));
  EXPECT_THAT(FromProto(read), IsOkAndHolds(Report()));
}

TEST(CommunicatorCodecTest, AKeyWithoutRanksIsRefused) {
  v1::CommunicatorKey proto = ToProto(Key());
  proto.clear_ranks();
  ExpectRefused(proto, "communicator.ranks: expected 1 to 4096, found 0");
}

TEST(CommunicatorCodecTest, AKeyOfTooManyRanksIsRefused) {
  v1::CommunicatorKey proto = ToProto(Key());
  for (int i = 0; i <= kCommunicatorRanksMax; ++i) *proto.add_ranks() = ToProto(RankName{"x", 1});
  ExpectRefused(proto, "found 4099");
}

TEST(CommunicatorCodecTest, ARankThatIsThereTwiceIsRefused) {
  v1::CommunicatorKey proto = ToProto(Key());
  *proto.add_ranks() = proto.ranks(0);
  ExpectRefused(proto, "GPU-a#1 twice");
}

TEST(CommunicatorCodecTest, AKeyWithoutAPurposeIsRefused) {
  v1::CommunicatorKey proto = ToProto(Key());
  proto.clear_purpose();
  ExpectRefused(proto, "communicator.purpose: expected 1 to 128 bytes, found 0");
}

TEST(CommunicatorCodecTest, ARankWithTooLongANameIsRefused) {
  ExpectRefused(ToProto(RankName{std::string(kGpuNameBytesMax + 1, 'x'), 1}),
                "rank.gpu: expected 1 to 128 bytes, found 129");
}

TEST(CommunicatorCodecTest, AReportOfNoRankIsRefused) {
  v1::PreflightReport proto = ToProto(Report());
  proto.clear_rank();
  ExpectRefused(proto, "rank.gpu");
}

TEST(CommunicatorCodecTest, NegativeNumbersOfAReportAreRefused) {
  v1::PreflightReport proto = ToProto(Report());
  proto.set_free_bytes(-1);
  ExpectRefused(proto, "preflight.free_bytes: expected at least 0, found -1");
}

TEST(CommunicatorCodecTest, AVariableThatIsThereTwiceIsRefused) {
  v1::PreflightReport proto = ToProto(Report());
  *proto.add_environment() = proto.environment(0);
  ExpectRefused(proto, "\"CUDA_VISIBLE_DEVICES\" twice");
}

TEST(CommunicatorCodecTest, TooManyVariablesAreRefused) {
  v1::PreflightReport proto = ToProto(Report());
  for (int i = 0; i < kPreflightVariablesMax; ++i) *proto.add_environment() = proto.environment(0);
  ExpectRefused(proto, "preflight.environment: expected at most 1024, found 1026");
}

}  // namespace
}  // namespace crossmesh
