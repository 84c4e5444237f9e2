#pragma once

#include "common/base/digest.h"

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>

#include <absl/container/flat_hash_map.h>

namespace crossmesh {

struct LaidOutPart;

// The parts that ran last, by digest, so that each travels once. Drops the part that was not asked
// for longest when it holds too much; tasks keep theirs. Thread-compatible.
class PartCache {
 public:
  struct Limits {
    size_t parts = 64;
    int64_t bytes = int64_t{64} << 20;  // serialized
  };

  explicit PartCache(Limits limits) : limits_(limits) {}

  // Null when it is not there.
  std::shared_ptr<const LaidOutPart> Find(const Digest& digest);
  // `bytes`: its serialized size. Kept even when it is larger than the limit, alone.
  void Insert(const Digest& digest, std::shared_ptr<const LaidOutPart> part, int64_t bytes);

  size_t size() const { return parts_.size(); }
  int64_t bytes() const { return bytes_; }

 private:
  struct Entry {
    std::shared_ptr<const LaidOutPart> part;
    int64_t bytes = 0;
    std::list<Digest>::iterator age;
  };

  void DropOldest();

  const Limits limits_;
  absl::flat_hash_map<Digest, Entry> parts_;
  std::list<Digest> by_age_;  // asked for last: in front
  int64_t bytes_ = 0;
};

}  // namespace crossmesh
