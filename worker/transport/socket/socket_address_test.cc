#include "worker/transport/socket/socket_address.h"

#include "common/testing/status_matchers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;

const SocketAddress kAddress = {
    .shared_memory = true,
    .nonce_file = {.pid = 4711, .fd = 12},
    .nonce = {'n', 'o', 'n', 'c', 'e'},
    .endpoint = {.ip = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, '\xff', '\xff', 127, 0, 0, 1},
                 .port = 65001}};

TEST(SocketAddressTest, DecodeInvertsEncode) {
  EXPECT_THAT(SocketAddress::Decode(kAddress.Encode()), IsOkAndHolds(kAddress));
}

TEST(SocketAddressTest, EveryChangedByteIsNoticed) {
  for (size_t i = 0; i < kAddress.Encode().size(); ++i) {
    std::string bytes = kAddress.Encode();
    bytes[i] = static_cast<char>(bytes[i] + 1);
    EXPECT_THAT(SocketAddress::Decode(bytes), StatusIs(absl::StatusCode::kInvalidArgument)) << i;
  }
}

TEST(SocketAddressTest, EveryOtherLengthIsNoticed) {
  const std::string bytes = kAddress.Encode();
  for (size_t i = 0; i < bytes.size(); ++i) {
    EXPECT_THAT(SocketAddress::Decode(bytes.substr(0, i)),
                StatusIs(absl::StatusCode::kInvalidArgument))
        << i;
  }
  EXPECT_THAT(SocketAddress::Decode(bytes + "x"), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(SocketAddressTest, AnotherVersionIsNamed) {
  std::string bytes = kAddress.Encode();
  bytes[8] = 1;
  EXPECT_THAT(SocketAddress::Decode(bytes), StatusIs(absl::StatusCode::kInvalidArgument,
                                                     HasSubstr("expected version 2, found 1")));
}

TEST(SocketAddressTest, EndpointsPrintAsUsual) {
  EXPECT_EQ(kAddress.endpoint.ToString(), "127.0.0.1:65001");
  IpEndpoint v6 = {.port = 7};
  v6.ip[15] = 1;
  EXPECT_EQ(v6.ToString(), "[::1]:7");
}

}  // namespace
}  // namespace crossmesh
