#pragma once

#include "worker/transport/socket/outgoing_stream.h"
#include "worker/transport/socket/testing/recording_sink.h"
#include "worker/transport/socket/testing/stream_peer.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <gtest/gtest.h>

namespace crossmesh {

// An OutgoingStream by itself: a test is the other side, byte by byte, and the loop.
class OutgoingStreamTest : public testing::Test {
 protected:
  using Reach = OutgoingStream::Reach;
  static constexpr size_t kMuch = 1 << 20;
  static constexpr size_t kLarge = 5000;  // more than is sent with its announcement

  OutgoingStreamTest() { Renew(/*shared_memory=*/false); }
  ~OutgoingStreamTest() override { stream_->End(absl::CancelledError("the test is over")); }

  // Another connection, of which the other side has read the handshake.
  void Renew(bool shared_memory, Reach reach = Reach::kBetweenHosts);

  // One piece of a payload that stays until the end of the test.
  iovec Piece(std::string bytes);
  void Send(Ticket ticket, std::vector<iovec> pieces);
  void SendBytes(Ticket ticket, std::string bytes) { Send(ticket, {Piece(std::move(bytes))}); }

  // As the loop does it: the stream is on the work list, once.
  absl::Status Work(size_t bytes_max);
  // What the other side can read after some work.
  std::string Written(size_t bytes_max = kMuch);
  void Answer(const FrameHeader& answer);
  void Answer(FrameKind kind, uint64_t id) { Answer({.kind = kind, .id = id}); }
  std::vector<std::string> Events();

  // Frames, as bytes.
  static std::string Announcement(const FrameHeader& frame, uint64_t sequence, uint64_t bytes);
  static std::string Announcement(uint64_t id, uint64_t sequence, uint64_t bytes) {
    return Announcement({.kind = FrameKind::kAnnounce, .id = id}, sequence, bytes);
  }
  static std::string PayloadHeader(uint64_t id) {
    return BytesOfObject(FrameHeader{.kind = FrameKind::kPayload, .id = id});
  }

  SocketHandshake handshake_;
  LentRegions regions_;
  SocketStream::WorkList work_list_;
  SinkQueue told_;
  RecordingSink sink_;
  StreamPeer peer_;
  std::unique_ptr<OutgoingStream> stream_;

 private:
  std::vector<std::unique_ptr<std::string>> payloads_;
  std::vector<std::unique_ptr<std::vector<iovec>>> lists_;
};

}  // namespace crossmesh
