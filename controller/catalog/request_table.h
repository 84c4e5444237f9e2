#pragma once

#include "common/base/digest.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include <absl/container/flat_hash_set.h>
#include <absl/hash/hash.h>
#include <absl/time/time.h>

namespace crossmesh {

// The requests that began jobs, oldest first. Each takes the same few bytes (about 80 with its
// share of the index), however long its id. Thread-compatible.
class RequestTable {
 public:
  struct Request {
    Digest id;
    Digest content;        // of the request without its id
    uint64_t job = 0;      // its number
    absl::Duration since;  // on the clock of the table's owner
  };

  RequestTable() : index_(0, Hash{this}, Equal{this}) {}
  RequestTable(const RequestTable&) = delete;
  RequestTable& operator=(const RequestTable&) = delete;

  // Null: not in the table. Valid until the next change.
  const Request* Find(const Digest& id) const;
  // Null: the table is empty. Valid until the next change.
  const Request* Oldest() const { return size() == 0 ? nullptr : &At(first_); }
  const Request* Newest() const { return size() == 0 ? nullptr : &At(next_ - 1); }
  int64_t size() const { return static_cast<int64_t>(next_ - first_); }

  // Must not be there, nor be older than one that is.
  void Add(const Request& request);
  // There must be one.
  void ForgetOldest();

 private:
  // Requests are numbered as they come, and lie in blocks of this many: large enough that the
  // allocator maps each by itself. Small pieces that live for a day, among those that live for a
  // call, would cost half as much again.
  static constexpr uint64_t kBlock = 4096;

  const Request& At(uint64_t number) const {
    return blocks_[number / kBlock - first_ / kBlock][number % kBlock];
  }
  struct Hash {
    using is_transparent = void;
    size_t operator()(const Digest& id) const { return absl::HashOf(id); }
    size_t operator()(uint64_t number) const { return (*this)(table->At(number).id); }
    const RequestTable* table;
  };
  struct Equal {
    using is_transparent = void;
    bool operator()(uint64_t a, uint64_t b) const { return a == b; }
    bool operator()(uint64_t a, const Digest& b) const { return table->At(a).id == b; }
    const RequestTable* table;
  };

  std::deque<std::vector<Request>> blocks_;
  uint64_t first_ = 0;  // number of the oldest
  uint64_t next_ = 0;
  absl::flat_hash_set<uint64_t, Hash, Equal> index_;  // numbers
};

}  // namespace crossmesh
