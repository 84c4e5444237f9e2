#pragma once

#include "common/base/digest.h"

#include <cstddef>
#include <cstdint>
#include <deque>

#include <absl/container/flat_hash_set.h>
#include <absl/hash/hash.h>
#include <absl/time/time.h>

namespace crossmesh {

// The requests that began operations, oldest first. Each takes the same few bytes (about 80 with
// its share of the index), however long its id. Thread-compatible.
class RequestTable {
 public:
  struct Request {
    Digest id;
    Digest content;  // of the request without its id
    uint64_t operation = 0;
    absl::Duration since;  // on the clock of whoever adds it
  };

  RequestTable() : index_(0, Hash{this}, Equal{this}) {}
  RequestTable(const RequestTable&) = delete;
  RequestTable& operator=(const RequestTable&) = delete;

  // Null: not in the table. Valid until the next change.
  const Request* Find(const Digest& id) const;
  // Null: the table is empty. Valid until the next change.
  const Request* Oldest() const { return requests_.empty() ? nullptr : &requests_.front(); }
  int64_t size() const { return static_cast<int64_t>(requests_.size()); }

  // Must not be there, nor be older than one that is.
  void Add(const Request& request);
  // There must be one.
  void ForgetOldest();

 private:
  // The index holds serial numbers: the request with number n is requests_[n - first_].
  const Request& At(uint64_t number) const { return requests_[number - first_]; }
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

  std::deque<Request> requests_;
  uint64_t first_ = 0;
  absl::flat_hash_set<uint64_t, Hash, Equal> index_;
};

}  // namespace crossmesh
