#include "worker/transport/striped/striped_address.h"

#include "common/testing/status_matchers.h"

#include <cstdint>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <xxhash.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;

const StripedAddress kAddress = {.nics = {"first", std::string(300, 'x'), std::string("\0", 1)}};

std::string Encoded() { return kAddress.Encode().value(); }

// With a checksum that is right for what stands before it.
std::string Sealed(std::string bytes) {
  const uint64_t checksum = XXH3_64bits(bytes.data(), bytes.size());
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(checksum >> (8 * i));
  return bytes;
}

TEST(StripedAddressTest, DecodeInvertsEncode) {
  EXPECT_THAT(StripedAddress::Decode(Encoded()), IsOkAndHolds(kAddress));
  const StripedAddress most = {.nics = std::vector<std::string>(16, std::string(250, 'y'))};
  ASSERT_OK_AND_ASSIGN(const std::string bytes, most.Encode());
  EXPECT_THAT(StripedAddress::Decode(bytes), IsOkAndHolds(most));
}

TEST(StripedAddressTest, WhatPeersWouldRefuseIsNotEncoded) {
  for (const std::vector<std::string>& nics :
       {std::vector<std::string>(), std::vector<std::string>(17, "a"),
        std::vector<std::string>{"a", ""}, std::vector<std::string>(4, std::string(1024, 'a'))}) {
    EXPECT_THAT(StripedAddress{.nics = nics}.Encode(),
                StatusIs(absl::StatusCode::kInvalidArgument));
  }
}

TEST(StripedAddressTest, EveryChangedByteIsNoticed) {
  for (size_t i = 0; i < Encoded().size(); ++i) {
    std::string bytes = Encoded();
    bytes[i] = static_cast<char>(bytes[i] + 1);
    EXPECT_THAT(StripedAddress::Decode(bytes), StatusIs(absl::StatusCode::kInvalidArgument)) << i;
  }
}

TEST(StripedAddressTest, EveryOtherLengthIsNoticed) {
  const std::string bytes = Encoded();
  for (size_t i = 0; i < bytes.size(); ++i) {
    EXPECT_THAT(StripedAddress::Decode(bytes.substr(0, i)),
                StatusIs(absl::StatusCode::kInvalidArgument))
        << i;
  }
  EXPECT_THAT(StripedAddress::Decode(bytes + "x"), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(StripedAddressTest, AnotherVersionIsNamed) {
  std::string bytes = Encoded();
  bytes[8] = 2;
  EXPECT_THAT(StripedAddress::Decode(bytes), StatusIs(absl::StatusCode::kInvalidArgument,
                                                      HasSubstr("expected version 1, found 2")));
}

TEST(StripedAddressTest, CountsAndSizesAreBoundedWhereTheChecksumIsRight) {
  const std::string head = "XMESHNIC\1";
  const auto address = [&](absl::string_view rest) { return Sealed(head + std::string(rest)); };
  using namespace std::string_literals;
  for (const auto& [bytes, problem] : {
           std::pair(address("\0"s), "expected 1 to 16 NICs, found 0"),
           std::pair(address("\x11"s), "expected 1 to 16 NICs, found 17"),
           std::pair(address("\1\1"s), "it ends before its last NIC"),
           std::pair(address("\1\0\0"s), "expected an address of 1 to 0 bytes, found 0"),
           std::pair(address("\1\3\0ab"s), "expected an address of 1 to 2 bytes, found 3"),
           std::pair(address("\2\1\0a\xff\xff"s),
                     "expected an address of 1 to 0 bytes, found 65535"),
           std::pair(address("\1\1\0ab"s), "1 bytes after its last NIC"),
           std::pair(address(std::string(4096, '\1')), "expected 18 to 4096 bytes"),
       }) {
    EXPECT_THAT(StripedAddress::Decode(bytes),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(problem)));
  }
}

}  // namespace
}  // namespace crossmesh
