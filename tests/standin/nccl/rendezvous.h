#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include <absl/strings/string_view.h>

namespace crossmesh {

// Where the ranks of a communicator meet: memory that all their processes map. Everything in it is
// zero at first. Text is complete before the number beside it says so.
struct RendezvousOrder {
  std::atomic<uint64_t> number;  // counted from 1
  std::atomic<uint64_t> hash;    // of this and all earlier ones
  std::array<char, 112> text;
};

// What a rank says of itself in a call of ncclCommSplit; complete before its number says so.
struct RendezvousSplit {
  std::atomic<uint64_t> number;  // counted from 1
  std::atomic<int32_t> color;
  std::atomic<int32_t> key;
};

// What one rank tells the others.
struct RendezvousCell {
  enum State : uint32_t { kFree, kBeingFilled, kJoined };
  std::atomic<uint32_t> state;
  int32_t version;
  std::array<char, 16> uuid;
  std::array<char, 64> environment;

  std::atomic<uint32_t> doorbell;  // a futex; counts what happened that this rank may wait for
  std::atomic<uint32_t> finalized;
  std::array<RendezvousOrder, 128> orders;  // of collective calls; the last ones, by number
  std::array<RendezvousSplit, 2> splits;    // likewise: no rank is more than one ahead
};

// A ring of bytes from one rank to another; positions only grow.
struct RendezvousRing {
  static constexpr uint64_t kBytes = 64 << 10;
  // The ends that have come to connect, before the first message.
  enum Ends : uint32_t { kSender = 1, kReceiver = 2, kBoth = 3 };
  std::atomic<uint32_t> ends;
  std::atomic<uint64_t> written;
  std::atomic<uint64_t> read;
  std::array<std::byte, kBytes> bytes;
};

// Thread-safe, as its parts say.
class Rendezvous {
 public:
  static constexpr int kRanksMax = 128;

  // Makes the file of a new rendezvous, and gives its name.
  static std::string MakeName();
  // Makes the file of that name, unless it is there.
  static void Make(const std::string& name);
  // Null, with the reason, when there is no such rendezvous or it is for another number of ranks.
  static std::unique_ptr<Rendezvous> Open(const std::string& name, int ranks, std::string& reason);
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  int ranks() const { return ranks_; }
  const std::string& name() const { return name_; }
  RendezvousCell& cell(int rank) const { return cells_[rank]; }
  RendezvousRing& ring(int from, int to) const { return rings_[from * ranks_ + to]; }
  // After all ranks have come: the name is free again.
  void RemoveName();

  void RingDoorbell(int rank) const;
  void RingAllDoorbells() const;
  // Until the doorbell is no longer `seen`, for a while at most.
  void WaitDoorbell(int rank, uint32_t seen) const;

  // The first rank that finds the ranks at odds says so to all.
  void Break(absl::string_view text) const;
  bool is_broken() const { return head_.broken == 2; }
  std::string broken_text() const { return head_.broken_text.data(); }

 private:
  struct Head {
    std::atomic<int32_t> ranks;
    std::atomic<uint32_t> broken;  // 0 no, 1 being written, 2 written
    std::array<char, 480> broken_text;
  };

  Rendezvous(std::string name, int ranks, void* memory);
  static size_t BytesFor(int ranks);

  const std::string name_;
  const int ranks_;
  void* const memory_;
  Head& head_;
  RendezvousCell* const cells_;
  RendezvousRing* const rings_;
};

// Copies as much of a text as fits, and a zero.
template <size_t kSize>
void SetText(std::array<char, kSize>& to, absl::string_view text) {
  to[text.copy(to.data(), kSize - 1)] = '\0';
}

}  // namespace crossmesh
