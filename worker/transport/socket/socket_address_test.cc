#include "worker/transport/socket/socket_address.h"

#include "common/testing/status_matchers.h"

#include <cstdint>
#include <string>

#include <absl/strings/str_cat.h>
#include <absl/strings/string_view.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <xxhash.h>

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

TEST(SocketAddressTest, AllFieldsMayHaveAllBits) {
  SocketAddress address = {.nonce_file = {.pid = 0xFEDCBA98, .fd = 0x89ABCDEF},
                           .endpoint = {.port = 0xFEDC}};
  address.nonce.fill('\xfe');
  address.endpoint.ip.fill('\xfd');
  EXPECT_THAT(SocketAddress::Decode(address.Encode()), IsOkAndHolds(address));
  EXPECT_THAT(SocketAddress::Decode(SocketAddress().Encode()), IsOkAndHolds(SocketAddress()));
}

// The bytes are those of socket_address.h.
TEST(SocketAddressTest, FieldsStandWhereTheFormatSays) {
  const std::string bytes = kAddress.Encode();
  ASSERT_EQ(bytes.size(), 60);
  EXPECT_EQ(bytes.substr(0, 18), absl::string_view("XMESHSOC\x02\x01\x67\x12\0\0\x0c\0\0\0", 18));
  EXPECT_EQ(bytes.substr(18, 5), "nonce");
  EXPECT_EQ(bytes.substr(44, 8), absl::string_view("\xff\xff\x7f\0\0\x01\xe9\xfd", 8));
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

TEST(SocketAddressTest, WhatIsNoAddressIsToldApartFromOneThatIsCutShort) {
  const auto refuses = [](absl::string_view why) {
    return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(std::string(why)));
  };
  EXPECT_THAT(SocketAddress::Decode("http://localhost:1"),
              refuses("socket address of 18 bytes: expected it to begin with XMESHSOC"));
  EXPECT_THAT(SocketAddress::Decode("XMESHSO"), refuses("expected it to begin with XMESHSOC"));
  EXPECT_THAT(SocketAddress::Decode("XMESHSOC"), refuses("expected 60 bytes"));
  // Of another version nothing else is known, its size neither.
  EXPECT_THAT(SocketAddress::Decode("XMESHSOC\x03"), refuses("expected version 2, found 3"));
  EXPECT_THAT(SocketAddress::Decode("XMESHSOC\x02"), refuses("expected 60 bytes"));
}

TEST(SocketAddressTest, FlagsThatAreNotKnownAreRefused) {
  for (const int flags : {2, 3, 255}) {
    std::string bytes = kAddress.Encode();
    bytes[9] = static_cast<char>(flags);
    const uint64_t checksum = XXH3_64bits(bytes.data(), 52);
    bytes.replace(52, 8, reinterpret_cast<const char*>(&checksum), 8);
    EXPECT_THAT(SocketAddress::Decode(bytes),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr(absl::StrCat("expected flags 0 or 1, found ", flags))));
  }
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
