#pragma once

#include "worker/transport/socket/socket_frame.h"
#include "worker/transport/socket/unmap_queue.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include <absl/container/flat_hash_map.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// A region of another process's memory that it has lent to this one. Thread-compatible.
class PeerRegion {
 public:
  PeerRegion(uint64_t id, const RegionFile& file, UnmapQueue& unmapped)
      : id_(id), file_(file), unmapped_(unmapped) {}
  ~PeerRegion();
  PeerRegion(const PeerRegion&) = delete;
  PeerRegion& operator=(const PeerRegion&) = delete;

  uint64_t id() const { return id_; }
  uint64_t size() const { return file_.bytes; }
  // Makes bytes() what the region holds; once. They stay empty where the system refuses that.
  // InvalidArgument: the region is not what was said of it, or may vanish.
  absl::Status Map(uint32_t pid);
  std::span<std::byte> bytes() const { return bytes_; }

  // How many payloads in it are not done.
  int64_t payloads = 0;

 private:
  // InvalidArgument: `fd` is not the file of the region, or not sealed.
  absl::Status Check(int fd) const;

  const uint64_t id_;
  const RegionFile file_;
  UnmapQueue& unmapped_;
  bool tried_ = false;
  std::span<std::byte> bytes_;
};

// What the other side of a stream has lent. Addresses of regions stay. Thread-compatible.
class PeerRegions {
 public:
  // What is not needed any more goes to `unmapped`, which must outlive this.
  explicit PeerRegions(UnmapQueue& unmapped) : unmapped_(unmapped) {}

  // Regions are mapped from the process `pid` from here on; before, they cannot be.
  void MapFrom(uint32_t pid) { pid_ = pid; }

  // All: InvalidArgument when the other side breaks the protocol.
  absl::Status Add(uint64_t id, const RegionFile& file);
  absl::Status Forget(uint64_t id);
  // Mapped, if this process can.
  absl::StatusOr<PeerRegion*> Find(uint64_t id);
  void Clear() { regions_.clear(); }

 private:
  UnmapQueue& unmapped_;
  std::optional<uint32_t> pid_;
  absl::flat_hash_map<uint64_t, std::unique_ptr<PeerRegion>> regions_;  // by id
};

}  // namespace crossmesh
