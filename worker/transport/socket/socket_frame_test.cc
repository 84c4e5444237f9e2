#include "worker/transport/socket/socket_frame.h"

#include "common/testing/status_matchers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kTooLargeToInline = kInlineBytesMax + 1;

auto Refuses(const char* text) {
  return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text));
}

TEST(SocketHandshakeTest, WhatDiffersIsNamed) {
  const SocketAddress own = {.nonce = {'m', 'e'}};
  const SocketHandshake good = {.to = own.nonce, .number = 1};
  EXPECT_OK(Validate(good, own));
  SocketHandshake bad = good;
  bad.magic = 1;
  EXPECT_THAT(Validate(bad, own), Refuses("expected magic"));
  bad = good;
  bad.version = 1;
  EXPECT_THAT(Validate(bad, own), Refuses("expected version 2, found 1"));
  bad = good;
  bad.to = {'y', 'o', 'u'};
  EXPECT_THAT(Validate(bad, own), Refuses("another transport"));
  bad = good;
  bad.shared_memory = 1;
  EXPECT_THAT(Validate(bad, own), Refuses("shared memory at most 0, found 1"));
  bad = good;
  bad.number = 0;
  EXPECT_THAT(Validate(bad, own), Refuses("number of at least 1, found 0"));
}

TEST(SocketHandshakeTest, SharedMemoryIsOfferedOrNot) {
  const SocketAddress own = {.shared_memory = true};
  SocketHandshake handshake = {.shared_memory = 0, .number = 1};
  EXPECT_OK(Validate(handshake, own));
  handshake.shared_memory = 1;
  EXPECT_OK(Validate(handshake, own));
  handshake.shared_memory = 2;
  EXPECT_THAT(Validate(handshake, own), Refuses("shared memory at most 1, found 2"));
}

TEST(AnnouncedBytesTest, SmallPayloadsFollow) {
  for (const bool shared_memory : {false, true}) {
    EXPECT_THAT(AnnouncedBytes({}, {.payload_bytes = 7}, shared_memory), IsOkAndHolds(7));
    EXPECT_THAT(AnnouncedBytes({.pieces = 1}, {.payload_bytes = 7}, shared_memory),
                Refuses("expected at most 0 pieces, found 1"));
  }
}

TEST(AnnouncedBytesTest, OfLargePayloadsTheirPlacesMayFollowWhereMemoryIsShared) {
  for (const bool shared_memory : {false, true}) {
    EXPECT_THAT(AnnouncedBytes({}, {.payload_bytes = kTooLargeToInline}, shared_memory),
                IsOkAndHolds(0));
  }
  EXPECT_THAT(AnnouncedBytes({.pieces = 1}, {.payload_bytes = kTooLargeToInline}, false),
              Refuses("found 1"));
  EXPECT_THAT(AnnouncedBytes({.pieces = 2}, {.payload_bytes = kTooLargeToInline}, true),
              IsOkAndHolds(32));
  EXPECT_THAT(AnnouncedBytes({.pieces = 1025}, {.payload_bytes = kTooLargeToInline}, true),
              Refuses("expected at most 1024 pieces, found 1025"));
}

TEST(AnnouncedBytesTest, TheLastThatIsSmallIsThatOf4096Bytes) {
  for (const bool shared_memory : {false, true}) {
    EXPECT_THAT(AnnouncedBytes({}, {.payload_bytes = 4096}, shared_memory), IsOkAndHolds(4096));
    EXPECT_THAT(AnnouncedBytes({.pieces = 1}, {.payload_bytes = 4096}, shared_memory),
                Refuses("announcement of 4096 bytes: expected at most 0 pieces, found 1"));
    EXPECT_THAT(AnnouncedBytes({}, {.payload_bytes = 4097}, shared_memory), IsOkAndHolds(0));
  }
  EXPECT_THAT(AnnouncedBytes({.pieces = 1024}, {.payload_bytes = 4097}, true),
              IsOkAndHolds(1024 * 16));
}

}  // namespace
}  // namespace crossmesh
