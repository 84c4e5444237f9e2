#pragma once

#include "common/base/check.h"
#include "worker/executor/wire_message.h"
#include "worker/transport/pieces.h"
#include "worker/transport/transport.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include <absl/status/status.h>
#include <sys/uio.h>

namespace crossmesh {

// Whose messages the transport moves: is told, on the loop, when it has finished with one.
class TransferOwner {
 public:
  virtual ~TransferOwner() = default;
  virtual void OnSent(Ticket ticket, const absl::Status& status) = 0;
  virtual void OnReceived(Ticket ticket, const absl::Status& status) = 0;
};

// What a message carries.
struct TransferSubject {
  MessageKind kind = MessageKind::kChunk;
  int32_t channel = 0;  // index into PreparedPart::channels
  int32_t entry = 0;    // of the channel; entry_count: all that are left
  int32_t chunk = 0;
  int64_t bytes = 0;                  // of payload
  std::span<std::byte> staging = {};  // of a chunk; empty when tiles are its memory

  int64_t chunk_bytes() const { return kind == MessageKind::kChunk ? bytes : 0; }
};

// One Send or Receive from its start until the transport has finished with it.
struct Transfer {
  TransferOwner* owner = nullptr;  // none: the place is free
  TransferSubject subject;
  std::vector<iovec> pieces;                      // what the transport reads or writes
  std::array<std::byte, kFailureBytesMax> small;  // the payload of everything but chunks

  std::span<std::byte> payload() { return std::span(small).first(subject.bytes); }
  Pieces OnePiece(std::span<std::byte> memory) {
    pieces.assign(memory.empty() ? 0 : 1, PieceOf(memory));
    return pieces;
  }
  // `memory` is that of the chunk, instead of tiles.
  void UseStaging(std::span<std::byte> memory) {
    subject.staging = memory;
    OnePiece(memory);
  }
};

// The transfers under way, named by tickets. Confined to the loop.
class TransferTable {
 public:
  // Makes room so that `count` more, of up to so many pieces, can be added without allocating.
  // Where several tasks need theirs at once there may be too few; each that is added then has room
  // for as many pieces at once, since otherwise it grows whenever a longer one comes to lie there.
  void Reserve(size_t count, size_t pieces_max) {
    pieces_max_ = std::max(pieces_max_, pieces_max);
    while (free_.size() < count) {
      free_.push_back(transfers_.size());
      transfers_.emplace_back();
    }
    for (const Ticket free : free_) transfers_[free].pieces.reserve(pieces_max_);
  }
  Ticket Add(TransferOwner& owner, const TransferSubject& subject) {
    if (free_.empty()) Reserve(1, pieces_max_);
    const Ticket ticket = free_.back();
    free_.pop_back();
    transfers_[ticket].owner = &owner;
    transfers_[ticket].subject = subject;
    return ticket;
  }
  Transfer& at(Ticket ticket) {
    CHECK(ticket < transfers_.size() && transfers_[ticket].owner != nullptr)
        << "no transfer " << ticket;
    return transfers_[ticket];
  }
  void Remove(Ticket ticket) {
    Transfer& transfer = at(ticket);
    transfer.owner = nullptr;
    free_.push_back(ticket);
  }

 private:
  std::deque<Transfer> transfers_;  // addresses stay
  std::vector<Ticket> free_;
  size_t pieces_max_ = 1;
};

}  // namespace crossmesh
