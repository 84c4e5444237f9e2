#pragma once

#include "worker/transport/socket/socket_address.h"
#include "worker/transport/transport.h"

#include <bit>
#include <cstddef>
#include <cstdint>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// What passes over the TCP connection that one Connect makes. All numbers are little endian.
//
// The side that connected sends a SocketHandshake, then frames:
//
//   kAnnounce   FrameHeader, MessageHeader, then
//               up to kInlineBytesMax bytes of payload: the payload itself;
//               more: `pieces` of RemotePiece, where it is in `region`, or none
//   kPayload    FrameHeader, the payload of the message. Payloads come in the order of kTake. With
//               kSayDone the system has taken its pages instead of a copy.
//   kRegion     FrameHeader, RegionFile: memory of this process that the other side may map, as
//               `region`; with shared memory only
//   kForget     FrameHeader: `region` goes away; no payload is in it any more
//
// The other side answers, each message that was announced without its payload once, and a payload
// with kSayDone by another kDone when all of it has been read:
//
//   kTake       send me the payload; kSayDone: I will say when I have it
//   kDone       I have the payload, or do not want it
struct SocketHandshake {
  static constexpr uint64_t kMagic = 0x434F5348534D5843;  // "CXMSHSOC"
  static constexpr uint32_t kVersion = 2;

  uint64_t magic = kMagic;
  uint32_t version = kVersion;
  uint32_t shared_memory = 0;  // 1: the sender lends memory
  TransportNonce to = {};      // the transport that the sender means to reach
  TransportNonce from = {};
  ProcessFile nonce_file;  // has the nonce `from`
  uint64_t number = 0;     // this is Connect number 1, 2, ... from `from` to `to`
};
static_assert(sizeof(SocketHandshake) == 64);

enum class FrameKind : uint32_t {
  kAnnounce = 1,
  kPayload = 2,
  kTake = 3,
  kDone = 4,
  kRegion = 5,
  kForget = 6
};
constexpr uint32_t ToNumber(FrameKind kind) { return static_cast<uint32_t>(kind); }

struct FrameHeader {
  static constexpr uint32_t kSayDone = 1;

  FrameKind kind = FrameKind::kAnnounce;
  uint32_t pieces = 0;  // of an announcement; kSayDone or 0 of kTake and kPayload
  uint64_t id = 0;      // of the message, the sender's choice
  uint64_t region = 0;  // the sender's choice; one that is forgotten does not come again
};
static_assert(sizeof(FrameHeader) == 24);

// A memfd of the process that greeted.
struct RegionFile {
  uint64_t bytes = 0;
  uint64_t inode = 0;
  uint32_t fd = 0;
  uint32_t unused = 0;
};
static_assert(sizeof(RegionFile) == 24);

struct RemotePiece {
  uint64_t offset = 0;  // in the region
  uint64_t bytes = 0;
};

static_assert(std::endian::native == std::endian::little, "these are sent as they are in memory");

constexpr size_t kInlineBytesMax = 4096;
constexpr size_t kPiecesMax = 1024;
// With smaller pieces than 16 KiB, in chunks of 1 MiB, it costs the system more to find them than
// it costs the sender to gather them first (docs/adr/0001).
constexpr int kTcpPiecesMax = 64;
constexpr size_t kRegionsMax = 4096;  // lent at a time
constexpr size_t kAnnounceBytes = sizeof(FrameHeader) + sizeof(MessageHeader);
constexpr size_t kFrameBytesMax = kAnnounceBytes + kPiecesMax * sizeof(RemotePiece);

// InvalidArgument, with what was expected and found: the handshake is not one for the transport
// `own`.
absl::Status Validate(const SocketHandshake& handshake, const SocketAddress& own);

// How many bytes follow an announcement's headers. InvalidArgument: the two contradict each other.
absl::StatusOr<size_t> AnnouncedBytes(const FrameHeader& frame, const MessageHeader& header,
                                      bool shared_memory);

}  // namespace crossmesh
