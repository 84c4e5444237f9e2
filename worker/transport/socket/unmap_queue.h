#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace crossmesh {

// Mappings that are not used any more. The system takes about a tenth of a second to unmap a GiB,
// so it is done in steps. Thread-compatible.
class UnmapQueue {
 public:
  UnmapQueue() = default;
  ~UnmapQueue();
  UnmapQueue(const UnmapQueue&) = delete;
  UnmapQueue& operator=(const UnmapQueue&) = delete;

  bool empty() const { return mappings_.empty(); }
  // Takes a whole mapping, and unmaps it at once when it is small.
  void Add(std::span<std::byte> mapping);
  // Unmaps some milliseconds' worth. Not when empty.
  void Step();

 private:
  std::vector<std::span<std::byte>> mappings_;
};

}  // namespace crossmesh
