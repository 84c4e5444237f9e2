#include "worker/executor/wire_message.h"

#include "common/testing/status_matchers.h"

#include <array>
#include <span>
#include <string>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

TEST(WireMessage, AFailureKeepsCodeAndText) {
  std::array<std::byte, kFailureBytesMax> bytes;
  const absl::Status status = absl::DataLossError("relay 3 at b.0");
  const size_t size = EncodeFailure(status, bytes);
  EXPECT_EQ(DecodeFailure(std::span(bytes).first(size)), status);
}

TEST(WireMessage, AFailureWithoutTextIsOneByte) {
  std::array<std::byte, kFailureBytesMax> bytes;
  EXPECT_EQ(EncodeFailure(absl::Status(absl::StatusCode::kAborted, ""), bytes), 1);
  EXPECT_EQ(DecodeFailure(std::span(bytes).first(1)), absl::AbortedError(""));
}

TEST(WireMessage, ALongTextIsCut) {
  std::array<std::byte, kFailureBytesMax> bytes;
  const size_t size = EncodeFailure(absl::UnavailableError(std::string(1000, 'x')), bytes);
  EXPECT_EQ(size, kFailureBytesMax);
  EXPECT_THAT(DecodeFailure(bytes),
              StatusIs(absl::StatusCode::kUnavailable, std::string(kFailureBytesMax - 1, 'x')));
}

TEST(WireMessage, ATextThatIsCutInACharacterStaysReadable) {
  std::array<std::byte, kFailureBytesMax> bytes;
  const std::string text(kFailureBytesMax - 2, 'x');
  const size_t size = EncodeFailure(absl::UnavailableError(text + "\xc3\xa9"), bytes);
  EXPECT_THAT(DecodeFailure(std::span(bytes).first(size)),
              StatusIs(absl::StatusCode::kUnavailable, text + "?"));
}

TEST(WireMessage, EveryCodeIsKeptAndNoOtherNumberIs) {
  for (int code = 1; code < 256; ++code) {
    const std::array bytes = {static_cast<std::byte>(code), std::byte{'x'}};
    const bool known = code <= static_cast<int>(absl::StatusCode::kUnauthenticated);
    EXPECT_EQ(
        DecodeFailure(bytes),
        absl::Status(known ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown, "x"))
        << code;
  }
}

TEST(WireMessage, NoBytesDecodeToSuccess) {
  for (int code = 0; code < 256; ++code) {
    const std::array bytes = {static_cast<std::byte>(code)};
    EXPECT_FALSE(DecodeFailure(bytes).ok()) << code;
  }
  EXPECT_FALSE(DecodeFailure({}).ok());
}

}  // namespace
}  // namespace crossmesh
