#include "worker/transport/socket/socket_frame.h"

#include <absl/strings/str_cat.h>

namespace crossmesh {

absl::Status Validate(const SocketHandshake& handshake, const SocketAddress& own) {
  const auto refuse = [](absl::string_view field, uint64_t expected, uint64_t found) {
    return absl::InvalidArgumentError(
        absl::StrCat("handshake: expected ", field, " ", expected, ", found ", found));
  };
  if (handshake.magic != SocketHandshake::kMagic) {
    return refuse("magic", SocketHandshake::kMagic, handshake.magic);
  }
  if (handshake.version != SocketHandshake::kVersion) {
    return refuse("version", SocketHandshake::kVersion, handshake.version);
  }
  // Another transport had this port before, or the number was guessed.
  if (handshake.to != own.nonce) {
    return absl::InvalidArgumentError("handshake: it is for another transport than this one");
  }
  if (handshake.shared_memory > (own.shared_memory ? 1 : 0)) {
    return refuse("shared memory at most", own.shared_memory ? 1 : 0, handshake.shared_memory);
  }
  if (handshake.number == 0) return refuse("a Connect's number of at least", 1, 0);
  return absl::OkStatus();
}

absl::StatusOr<size_t> AnnouncedBytes(const FrameHeader& frame, const MessageHeader& header,
                                      bool shared_memory) {
  const bool may_have_pieces = shared_memory && header.payload_bytes > kInlineBytesMax;
  const uint32_t pieces_max = may_have_pieces ? kPiecesMax : 0;
  if (frame.pieces > pieces_max) {
    return absl::InvalidArgumentError(absl::StrCat("announcement of ", header.payload_bytes,
                                                   " bytes: expected at most ", pieces_max,
                                                   " pieces, found ", frame.pieces));
  }
  if (header.payload_bytes <= kInlineBytesMax) return header.payload_bytes;
  return frame.pieces * sizeof(RemotePiece);
}

}  // namespace crossmesh
