#pragma once

#include "worker/transport/piece_cursor.h"
#include "worker/transport/socket/byte_queue.h"
#include "worker/transport/socket/fifo.h"
#include "worker/transport/socket/lent_regions.h"
#include "worker/transport/socket/sink_queue.h"
#include "worker/transport/socket/socket_frame.h"
#include "worker/transport/socket/socket_stream.h"
#include "worker/transport/transport.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <absl/container/flat_hash_set.h>
#include <absl/status/status.h>

namespace crossmesh {

// The end of a TCP connection that announces messages and sends their payloads when the other side
// asks for them, straight from where they are. Announcements are in the order of Send, payloads in
// the order asked for, one at a time; announcements wait for no more than the payload under way.
//
// Inside a host, of a payload that lies in a region in long pieces, the system is given the pages
// instead of a copy, where the other side says when it has read them.
class OutgoingStream final : public SocketStream {
 public:
  // What the streams of a transport share.
  struct Shared {
    const LentRegions& regions;  // in which payloads may lie
    WorkList& work_list;
    SinkQueue& told;  // of completions
  };

  enum class Reach : bool { kBetweenHosts = false, kInsideHost = true };

  // Greets with `handshake`; where that allows it, the other side is told of the regions that
  // payloads lie in. What is shared must outlive this.
  OutgoingStream(UniqueFd fd, Reach reach, const SocketHandshake& handshake, const Shared& shared);

  // As Transport::Send.
  void Send(const MessageHeader& header, Pieces payload, Ticket ticket);
  // The region is not lent any more.
  void Forget(uint64_t region);
  absl::Status Read(size_t bytes_max) override;

 private:
  static constexpr uint32_t kNone = ~uint32_t{0};

  // A message with its place: used again, and then with another id.
  struct Message {
    enum class State { kFree, kAnnounced, kTaken, kSent };  // kSent: not read yet
    State state = State::kFree;
    bool says_done = false;  // the other side, when it has read it
    uint32_t uses = 0;
    Pieces payload;
    Ticket ticket = 0;
  };
  // A message that travels whole: it is sent when the stream has come so far.
  struct Inline {
    uint64_t end = 0;
    Ticket ticket = 0;
  };

  absl::Status DoWork(size_t bytes_max) override;
  void CompleteAll(const absl::Status& why) override;

  uint32_t NewPlace();
  uint64_t IdOf(uint32_t place) const;
  void PushInline(const MessageHeader& header, Pieces payload, Ticket ticket);
  void PushPieces(const LentRegion& region, Pieces payload);
  // The region in which the payload lies, and which the other side has been told of; or none.
  const LentRegion* FindRegion(Pieces payload);
  absl::Status HandleAnswer(const FrameHeader& answer);
  void Finish(uint32_t place, const absl::Status& status);
  void BeginPayload();
  bool MayGivePages(const Message& message) const;
  // Of the payload under way.
  bool GivesPages() const { return current_ != kNone && awaits_done_ && gives_pages_; }
  absl::StatusOr<size_t> WriteSome(size_t bytes_max);
  std::optional<size_t> WritePagesOf(std::span<const std::byte> piece, size_t bytes_max);
  void Account(size_t written);

  const bool shared_memory_;
  const LentRegions& regions_;
  bool gives_pages_;  // until the system refuses
  SinkQueue& told_;
  absl::flat_hash_set<uint64_t> known_regions_;  // to the other side
  ByteQueue bytes_;                              // all that is sent, but for payloads
  Fifo<Inline> inline_;
  std::vector<Message> messages_;
  std::vector<uint32_t> free_;
  Fifo<uint32_t> taken_;  // to send next
  // The payload under way: after so many bytes of bytes_, and before the others.
  uint32_t current_ = kNone;
  size_t bytes_before_ = 0;
  bool awaits_done_ = false;  // the other side is to say when it has read it
  PieceCursor left_;
  // The beginning of an answer.
  std::array<std::byte, 4096> answers_;
  size_t answers_size_ = 0;
};

}  // namespace crossmesh
