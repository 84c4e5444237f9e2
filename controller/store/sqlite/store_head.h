#pragma once

#include "common/base/digest.h"

#include <cstdint>
#include <span>

#include <absl/strings/string_view.h>

namespace crossmesh {

// What the store knows of all its rows: the one row of table `meta`, written by every commit.
struct StoreHead {
  int64_t revision = 0;  // of the newest commit
  uint64_t epoch = 0;    // the highest that a commit had
  int64_t next_id = 1;   // of the next row of `versions`
  int64_t row_count = 0;
  uint64_t row_sum = 0;  // of the checksums of all rows, modulo 2^64: no row can go or come back
  Digest chain;          // over all commits to `revision`, from a random beginning
  int64_t floor = 0;     // the commits after it are kept whole
  Digest floor_chain;    // over all commits to `floor`

  // Of all of the above.
  int64_t Checksum() const;
  // The chain after one more commit, with the checksums of its rows in their order.
  void Extend(std::span<const int64_t> row_checksums);

  friend bool operator==(const StoreHead&, const StoreHead&) = default;
};

// As StoreHead::Extend does it for the commit of this revision.
Digest NextChain(const Digest& chain, int64_t revision, std::span<const int64_t> row_checksums);

// A row of table `versions`: what a commit wrote under a key.
struct VersionHeader {
  static constexpr int64_t kDeleted = -1;

  int64_t id = 0;
  int64_t revision = 0;
  absl::string_view key;
  int64_t value_bytes = kDeleted;
  int64_t value_checksum = 0;

  // Of all columns but the value, which has a checksum of its own: so opening a store reads no
  // value that is large.
  int64_t Checksum() const;
};

int64_t ValueChecksum(absl::string_view value);

}  // namespace crossmesh
