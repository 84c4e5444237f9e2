#pragma once

#include <cstdint>

#include <absl/container/flat_hash_set.h>

namespace crossmesh {

// Numbers the Connects between this transport and one other, so that both sides mean the same by
// "the k-th". A connection that the other side made and that ended before this side connected is
// over for both: this side skips its number, as the other never uses it again. Thread-compatible.
class ConnectionNumbers {
 public:
  // The number of this side's next Connect.
  uint64_t Next();
  // The other side connected with `number`, to which this side has no open connection. False: this
  // side has had one, or the other side uses the number twice.
  bool MayBegin(uint64_t number) const { return number > last_ && !ended_.contains(number); }
  // A connection ended to which this side had not connected.
  void Skip(uint64_t number);

 private:
  void Advance();

  uint64_t last_ = 0;                    // used or skipped, with all before
  absl::flat_hash_set<uint64_t> ended_;  // to skip, all after last_ + 1
};

}  // namespace crossmesh
