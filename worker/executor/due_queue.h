#pragma once

#include "worker/executor/prepared_part.h"

#include <cstdint>
#include <span>
#include <vector>

namespace crossmesh {

// What a channel that begins here carries next: of all its entries the message that is due first,
// then that of the earlier entry. The messages of an entry are its chunks in order, then its end.
// An entry whose next message is not here yet sleeps, so that it holds up no other. Allocates
// nothing after construction. Confined to the loop.
class DueQueue {
 public:
  // All entries are awake. The part must outlive the queue.
  DueQueue(const PreparedPart& part, const PreparedPart::Channel& channel);

  // All messages are to come again.
  void Rewind();

  // Does no entry that is awake have a message left?
  bool idle() const { return awake_.empty(); }
  // Has every entry had its end?
  bool finished() const { return left_ == 0; }

  // The next message, when not idle.
  int32_t due() const { return awake_.front().due; }
  int32_t entry() const { return awake_.front().entry; }
  int32_t chunk() const { return next_chunk_[entry()]; }

  void Advance();   // past the next message
  void EndEntry();  // past the end of its entry, with what was still to come of it
  void Sleep();     // its entry is passed over until Wake
  void Wake(int32_t entry);

 private:
  static constexpr int32_t kEnded = -1;

  // An entry and when its next message is due.
  struct Turn {
    int32_t due = 0;
    int32_t entry = 0;
    // Of a heap whose first is due first.
    friend bool operator<(const Turn& a, const Turn& b) {
      return a.due != b.due ? a.due > b.due : a.entry > b.entry;
    }
  };

  const PreparedPart::Node& NodeOf(int32_t entry) const;
  void Push(int32_t entry);
  int32_t Pop();

  const PreparedPart& part_;
  const std::span<const PreparedPart::Entry> entries_;
  std::vector<int32_t> next_chunk_;  // by entry; its chunks: the end is next; or kEnded
  std::vector<bool> asleep_;         // by entry
  std::vector<Turn> awake_;          // a heap
  int32_t left_ = 0;                 // entries that have not ended
};

}  // namespace crossmesh
