#pragma once

#include "common/base/digest.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <absl/status/status.h>

namespace crossmesh {

// MessageHeader::kind. Numbers are part of the wire format.
enum class MessageKind : uint32_t {
  kOpening = 1,   // sequence 0: OpeningPayload
  kChunk = 2,     // packed bytes of one chunk
  kChecksum = 3,  // at the end of an entry: the checksum of the relay's root, 8 bytes
  kFailed = 4,    // at the end of an entry or, for all that is left, of the channel: why
  kProbe = 5,     // from the channel's receiver: are you there? No payload
  kAlive = 6,     // the answer
  kReady = 7,     // from the channel's receiver, where senders wait for it. No payload
  kStopped = 8,   // of replays, from either end: they have failed here, and are over. No payload
};

// What both ends of a channel must agree on.
struct OpeningPayload {
  Digest order;
  int64_t chunk_bytes = 0;
  int64_t checksums = 0;  // 0 or 1
  friend bool operator==(const OpeningPayload&, const OpeningPayload&) = default;
};
static_assert(sizeof(OpeningPayload) == 32);
std::string ToString(const OpeningPayload& opening);

// Payload of kFailed: the status code, then as much of the message as fits.
inline constexpr size_t kFailureBytesMax = 256;
// Returns the bytes used.
size_t EncodeFailure(const absl::Status& status, std::span<std::byte, kFailureBytesMax> into);
// Never OK, whatever the bytes; the message is valid UTF-8.
absl::Status DecodeFailure(std::span<const std::byte> bytes);

}  // namespace crossmesh
