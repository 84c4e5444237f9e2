#include "worker/transport/ucx/ucx_address.h"

#include "common/testing/status_matchers.h"

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;

const UcxAddress kAddress = {
    .shared_memory = true, .boot_id = "0123456789abcdef", .worker_address = "where to connect"};

TEST(UcxAddressTest, DecodeInvertsEncode) {
  EXPECT_THAT(UcxAddress::Decode(kAddress.Encode()), IsOkAndHolds(kAddress));
}

TEST(UcxAddressTest, EveryChangedByteIsNoticed) {
  for (size_t i = 0; i < kAddress.Encode().size(); ++i) {
    std::string bytes = kAddress.Encode();
    bytes[i] = static_cast<char>(bytes[i] + 1);
    EXPECT_THAT(UcxAddress::Decode(bytes), StatusIs(absl::StatusCode::kInvalidArgument)) << i;
  }
}

TEST(UcxAddressTest, EveryOtherLengthIsNoticed) {
  const std::string bytes = kAddress.Encode();
  for (size_t i = 0; i < bytes.size(); ++i) {
    EXPECT_THAT(UcxAddress::Decode(bytes.substr(0, i)),
                StatusIs(absl::StatusCode::kInvalidArgument))
        << i;
  }
  EXPECT_THAT(UcxAddress::Decode(bytes + "x"), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(UcxAddressTest, AnotherVersionIsNamed) {
  std::string bytes = kAddress.Encode();
  bytes[8] = 2;
  EXPECT_THAT(UcxAddress::Decode(bytes), StatusIs(absl::StatusCode::kInvalidArgument,
                                                  HasSubstr("expected version 1, found 2")));
}

}  // namespace
}  // namespace crossmesh
