#include "common/rpc/status_codec.h"

#include "common/testing/status_matchers.h"

#include <string>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

TEST(StatusCodecTest, EveryCodeSurvivesBothWays) {
  for (int code = 0; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), code == 0 ? "" : "mesh \"a\"");
    EXPECT_EQ(ToGrpcStatus(status).error_code(), code);
    EXPECT_EQ(FromGrpcStatus(ToGrpcStatus(status)), status);
  }
}

TEST(StatusCodecTest, CodesBeyondTheCanonicalOnesAreUnknown) {
  EXPECT_THAT(FromGrpcStatus(grpc::Status(static_cast<grpc::StatusCode>(17), "odd")),
              StatusIs(absl::StatusCode::kUnknown, "odd"));
  EXPECT_THAT(FromGrpcStatus(grpc::Status(grpc::StatusCode::DO_NOT_USE, "odd")),
              StatusIs(absl::StatusCode::kUnknown, "odd"));
}

TEST(StatusCodecTest, LongMessagesAreCutBetweenCharacters) {
  std::string text = "x";
  while (text.size() < 5000) text += "\u00e9";  // two bytes, at odd offsets, which travel as six
  const std::string cut = ToGrpcStatus(absl::InternalError(text)).error_message();
  EXPECT_EQ(cut, text.substr(0, 1023));
}

TEST(StatusCodecTest, LongMessagesOfAsciiAreThreeKibibytes) {
  const std::string text(5000, '~');
  EXPECT_EQ(ToGrpcStatus(absl::InternalError(text)).error_message(), text.substr(0, 3 << 10));
  const std::string encoded(5000, '%');
  EXPECT_EQ(ToGrpcStatus(absl::InternalError(encoded)).error_message(), encoded.substr(0, 1 << 10));
}

}  // namespace
}  // namespace crossmesh
