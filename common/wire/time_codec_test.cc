#include "common/wire/time_codec.h"

#include "common/testing/is_refused.h"
#include "common/testing/status_matchers.h"

#include <cstdint>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

google::protobuf::Duration DurationOf(int64_t seconds, int32_t nanos) {
  google::protobuf::Duration proto;
  proto.set_seconds(seconds);
  proto.set_nanos(nanos);
  return proto;
}

google::protobuf::Timestamp TimestampOf(int64_t seconds, int32_t nanos) {
  google::protobuf::Timestamp proto;
  proto.set_seconds(seconds);
  proto.set_nanos(nanos);
  return proto;
}

TEST(TimeCodecTest, DurationsSurviveBothWays) {
  for (const absl::Duration duration :
       {absl::ZeroDuration(), absl::Nanoseconds(1), absl::Milliseconds(2500),
        absl::Milliseconds(-2500), absl::Hours(24 * 3652)}) {
    EXPECT_THAT(FromProto(ToProto(duration)), IsOkAndHolds(duration));
  }
  // Seconds and nanoseconds have one sign.
  EXPECT_EQ(ToProto(absl::Milliseconds(-2500)).seconds(), -2);
  EXPECT_EQ(ToProto(absl::Milliseconds(-2500)).nanos(), -500'000'000);
}

TEST(TimeCodecTest, TimesSurviveBothWays) {
  for (const absl::Time time : {absl::UnixEpoch(), absl::FromUnixMillis(1'500),
                                absl::FromUnixMillis(-1'500), absl::FromUnixSeconds(1 << 30)}) {
    EXPECT_THAT(FromProto(ToProto(time)), IsOkAndHolds(time));
  }
  // Nanoseconds count forward, before 1970 as well.
  EXPECT_EQ(ToProto(absl::FromUnixMillis(-1'500)).seconds(), -2);
  EXPECT_EQ(ToProto(absl::FromUnixMillis(-1'500)).nanos(), 500'000'000);
}

TEST(TimeCodecTest, MessagesOutOfTheirOwnRangeAreRefused) {
  for (const auto& proto : {DurationOf(1, -1), DurationOf(-1, 1), DurationOf(0, 1'000'000'000),
                            DurationOf(315'576'000'001, 0), DurationOf(-315'576'000'001, 0)}) {
    EXPECT_THAT(FromProto(proto), IsRefused("not a duration"));
  }
  for (const auto& proto : {TimestampOf(0, -1), TimestampOf(0, 1'000'000'000),
                            TimestampOf(253'402'300'800, 0), TimestampOf(-62'135'596'801, 0)}) {
    EXPECT_THAT(FromProto(proto), IsRefused("not a time"));
  }
}

TEST(TimeCodecTest, ADurationMustBeInTheRangeOfItsField) {
  constexpr DurationRange kRange = {absl::Milliseconds(100), absl::Hours(24)};
  EXPECT_THAT(DurationIn(ToProto(kRange.least), kRange, "deadline"), IsOkAndHolds(kRange.least));
  EXPECT_THAT(DurationIn(ToProto(kRange.most), kRange, "deadline"), IsOkAndHolds(kRange.most));
  EXPECT_THAT(DurationIn(DurationOf(0, 99'999'999), kRange, "deadline"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "deadline: expected 100ms to 24h, found 99.999999ms"));
  EXPECT_THAT(DurationIn(DurationOf(86'400, 1), kRange, "deadline"),
              IsRefused("expected 100ms to 24h"));
  EXPECT_THAT(DurationIn(DurationOf(1, -1), kRange, "deadline"), IsRefused("deadline: expected"));
}

}  // namespace
}  // namespace crossmesh
