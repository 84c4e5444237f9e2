#include "tests/standin/nccl/work.h"

#include "tests/standin/control/stand_in_control.h"

#include <algorithm>
#include <cstring>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// Copies to a ring at a position, or from it, in the two parts that its end may make of it.
void CopyToRing(RendezvousRing& ring, uint64_t position, const std::byte* from, uint64_t bytes) {
  const uint64_t begin = position % RendezvousRing::kBytes;
  const uint64_t first = std::min(bytes, RendezvousRing::kBytes - begin);
  std::memcpy(ring.bytes.data() + begin, from, first);
  std::memcpy(ring.bytes.data(), from + first, bytes - first);
}

void CopyFromRing(const RendezvousRing& ring, uint64_t position, std::byte* to, uint64_t bytes) {
  const uint64_t begin = position % RendezvousRing::kBytes;
  const uint64_t first = std::min(bytes, RendezvousRing::kBytes - begin);
  std::memcpy(to, ring.bytes.data() + begin, first);
  std::memcpy(to + first, ring.bytes.data(), bytes - first);
}

}  // namespace

std::string MessageHead::ToString() const {
  const std::string what =
      collective == 0 ? "send and receive" : absl::StrCat("collective ", collective);
  return absl::StrCat(bytes, " bytes of type ", type, " by ", what, " after ", collectives,
                      " collectives");
}

Work::Work(const Rendezvous& rendezvous, int rank)
    : rendezvous_(rendezvous),
      rank_(rank),
      sends_(rendezvous.ranks()),
      receives_(rendezvous.ranks()) {}

std::byte* Work::Scratch(size_t bytes) {
  scratch_.emplace_back(bytes);
  return scratch_.back().data();
}

void Work::Use(const void* memory, size_t bytes) {
  if (bytes == 0) return;
  crossmeshStandInUseMemory(memory, bytes, 1);
  used_.emplace_back(memory, bytes);
}

void Work::ReleaseMemory() {
  for (const auto& [memory, bytes] : used_) crossmeshStandInUseMemory(memory, bytes, -1);
  used_.clear();
}

bool Work::Progress() {
  if (stalls_) return false;
  bool moved = false;
  for (auto* queues : {&sends_, &receives_}) {
    for (std::deque<Transfer>& queue : *queues) {
      while (!queue.empty()) {
        Transfer& transfer = queue.front();
        const bool step = queues == &sends_ ? ProgressSend(transfer) : ProgressReceive(transfer);
        moved = moved || step;
        if (transfer.moved < sizeof(MessageHead) + transfer.head.bytes) break;
        queue.pop_front();
      }
    }
  }
  return moved;
}

bool Work::ProgressSend(Transfer& transfer) {
  RendezvousRing& ring = rendezvous_.ring(rank_, transfer.peer);
  const uint64_t written = ring.written;
  const uint64_t room = RendezvousRing::kBytes - (written - ring.read);
  uint64_t bytes = 0;
  if (transfer.moved == 0) {
    bytes = sizeof(MessageHead);
    if (room < bytes) return false;
    CopyToRing(ring, written, reinterpret_cast<const std::byte*>(&transfer.head), bytes);
  } else {
    const uint64_t done = transfer.moved - sizeof(MessageHead);
    bytes = std::min(room, transfer.head.bytes - done);
    if (bytes == 0) return false;
    CopyToRing(ring, written, transfer.memory + done, bytes);
    if (transfer.corrupts && done == 0)
      ring.bytes[written % RendezvousRing::kBytes] ^= std::byte{1};
  }
  transfer.moved += bytes;
  ring.written = written + bytes;
  rendezvous_.RingDoorbell(transfer.peer);
  return true;
}

bool Work::ProgressReceive(Transfer& transfer) {
  RendezvousRing& ring = rendezvous_.ring(transfer.peer, rank_);
  const uint64_t read = ring.read;
  const uint64_t there = ring.written - read;
  uint64_t bytes = 0;
  if (transfer.moved == 0) {
    bytes = sizeof(MessageHead);
    if (there < bytes) return false;
    MessageHead sent;
    CopyFromRing(ring, read, reinterpret_cast<std::byte*>(&sent), bytes);
    if (sent != transfer.head) {
      rendezvous_.Break(absl::StrCat("message ", transfer.head.index, " from rank ", transfer.peer,
                                     " to rank ", rank_, " is sent as ", sent.ToString(),
                                     " and received as ", transfer.head.ToString()));
      return false;
    }
  } else {
    const uint64_t done = transfer.moved - sizeof(MessageHead);
    bytes = std::min(there, transfer.head.bytes - done);
    if (bytes == 0) return false;
    CopyFromRing(ring, read, transfer.memory + done, bytes);
    if (transfer.corrupts && done == 0) transfer.memory[0] ^= std::byte{1};
  }
  transfer.moved += bytes;
  ring.read = read + bytes;
  rendezvous_.RingDoorbell(transfer.peer);
  return true;
}

bool Work::IsDone() const {
  if (stalls_) return false;
  for (int peer = 0; peer < rendezvous_.ranks(); ++peer) {
    const RendezvousRing& ring = rendezvous_.ring(rank_, peer);
    if (!sends_[peer].empty() || !receives_[peer].empty() || ring.read != ring.written)
      return false;
  }
  return true;
}

void Work::Finish() {
  for (absl::AnyInvocable<void()>& finish : finishes_) finish();
}

}  // namespace crossmesh
