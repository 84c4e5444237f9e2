#pragma once

#include "worker/transport/message_pool.h"
#include "worker/transport/socket/incoming_stream.h"
#include "worker/transport/socket/testing/recording_sink.h"
#include "worker/transport/socket/testing/stream_peer.h"
#include "worker/transport/testing/sealed_memory.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <gtest/gtest.h>

namespace crossmesh {

// An IncomingStream by itself: a test is the other side, byte by byte, and the loop.
class IncomingStreamTest : public testing::Test {
 protected:
  static constexpr size_t kMuch = 1 << 20;
  static constexpr uint64_t kLarge = 5000;  // more than is sent with its announcement
  static constexpr uint64_t kRegion = 7;

  IncomingStreamTest() { Renew(); }
  ~IncomingStreamTest() override { Renew(); }

  // Another connection.
  void Renew();

  static SocketHandshake Handshake(bool shared_memory);
  // Frames, as bytes.
  static std::string Announcement(uint64_t id, uint64_t bytes, uint32_t pieces = 0);
  static std::string Announcements(uint64_t first, uint64_t count, uint64_t bytes);
  static std::string PayloadHeader(uint64_t id);
  std::string Lending() const;
  static std::string Forgetting();

  void Greet(bool shared_memory = false);
  // Messages `first`, ... of kLarge bytes are there, and are asked for.
  void Ask(uint64_t first, uint64_t count);
  // Message `index` of those held, into a place of its own.
  void Receive(size_t index, Ticket ticket);
  std::string& place(size_t index) { return places_[index]->bytes; }
  void DropHeld();

  // What the stream told.
  std::vector<std::string> Events();
  // As the loop does it: the stream is on the work list, once.
  absl::Status Work(size_t bytes_max);
  // That the other side can read now.
  std::vector<FrameHeader> Answers();

  const std::unique_ptr<SealedMemory> memory_ = SealedMemory::Create(3 * kLarge);
  UnmapQueue unmapped_;
  MessagePool pool_;
  SinkQueue told_;
  SocketStream::WorkList work_list_;
  StreamPeer peer_;
  RecordingSink sink_;
  std::unique_ptr<IncomingStream> stream_;

 private:
  struct Place {
    std::string bytes;
    std::vector<iovec> pieces;
  };

  std::vector<std::unique_ptr<Place>> places_;
};

}  // namespace crossmesh
