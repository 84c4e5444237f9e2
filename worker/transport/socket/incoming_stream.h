#pragma once

#include "worker/transport/message_pool.h"
#include "worker/transport/piece_cursor.h"
#include "worker/transport/socket/byte_queue.h"
#include "worker/transport/socket/fifo.h"
#include "worker/transport/socket/incoming_message.h"
#include "worker/transport/socket/peer_regions.h"
#include "worker/transport/socket/sink_queue.h"
#include "worker/transport/socket/socket_frame.h"
#include "worker/transport/socket/socket_stream.h"
#include "worker/transport/socket/unmap_queue.h"
#include "worker/transport/transport.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <absl/status/status.h>

namespace crossmesh {

// The end of a TCP connection where messages come in. Payloads are read from the socket straight to
// where they belong, but for what is read together with the frame before it; or, through shared
// memory, copied from the sender's.
class IncomingStream final : public SocketStream {
 public:
  // What the streams of a transport share.
  struct Shared {
    WorkList& work_list;
    SinkQueue& told;       // of messages and completions
    MessagePool& pool;     // of the messages
    UnmapQueue& unmapped;  // mappings that are not needed any more
  };

  // What is shared must outlive this.
  IncomingStream(UniqueFd fd, const Shared& shared);

  // What the other side said of itself, once that has come. Nothing is made of what follows before
  // Admit.
  const std::optional<SocketHandshake>& handshake() const { return handshake_; }
  // The handshake is valid. `shared_memory`: this process can map memory of the other side.
  absl::Status Admit(bool shared_memory);
  absl::Status Read(size_t bytes_max) override;

 private:
  friend class SocketMessage;

  // A payload that was asked for.
  struct Receiving {
    uint64_t id = 0;
    PieceCursor into;
    Ticket ticket = 0;
  };
  // A payload that is there, in memory of the other side.
  struct Copying {
    uint64_t id = 0;
    PeerRegion* region = nullptr;
    std::vector<iovec> remote;
    PieceCursor from;  // of `remote`
    PieceCursor into;
    Ticket ticket = 0;
  };

  // What a message asks for. Hold: it waits. Drop: it is not wanted. Receive: as its own.
  void Hold(SocketMessage& message);
  void Drop(SocketMessage& message);
  void Receive(SocketMessage& message, Pieces into, Ticket ticket);
  void Release(SocketMessage& message);

  absl::Status DoWork(size_t bytes_max) override;
  void CompleteAll(const absl::Status& why) override;

  absl::StatusOr<size_t> ReadSome(size_t bytes_max);
  size_t AheadBytes() const;
  absl::Status Parse();
  // Makes something of what stands at the front of the buffer; false: more bytes are needed.
  absl::StatusOr<bool> ParseOne();
  absl::StatusOr<bool> ParseAnnouncement(const FrameHeader& frame);
  absl::Status ParsePayload(const FrameHeader& frame);
  absl::StatusOr<bool> ParseRegion(const FrameHeader& frame);
  absl::Status ParseForget(const FrameHeader& frame);
  // `offset`: of the pieces in the buffer.
  absl::Status ParsePieces(size_t offset, const FrameHeader& frame,
                           SocketMessage::Announced& announced);
  absl::Status CheckBound() const;
  void Answer(const FrameHeader& answer);
  void CopyPayloads(size_t bytes_max);
  absl::Status WriteAnswers();
  void FinishFirst(const absl::Status& status);
  std::vector<iovec> SpareList();
  void KeepList(std::vector<iovec> list);
  size_t buffered() const { return end_ - begin_; }

  SinkQueue& told_;
  MessagePool& pool_;
  std::optional<SocketHandshake> handshake_;
  bool admitted_ = false;
  const std::unique_ptr<std::byte[]> buffer_;
  size_t begin_ = 0;  // of what was read and not yet made something of
  size_t end_ = 0;
  PeerRegions regions_;
  Fifo<Receiving> receiving_;  // in the order asked for
  bool in_payload_ = false;    // the first one's bytes come now
  bool says_done_ = false;     // when they all have
  Fifo<Copying> copying_;
  ByteQueue answers_;
  SocketMessage* messages_ = nullptr;  // not answered yet, the first of them
  int64_t pages_ = 0;                  // of these
  std::vector<std::vector<iovec>> spare_lists_;
};

}  // namespace crossmesh
