#include "worker/transport/socket/unmap_queue.h"

#include <sys/mman.h>

namespace crossmesh {
namespace {

// A multiple of the size of huge pages, which mappings may consist of.
constexpr size_t kStepBytes = 16 << 20;

}  // namespace

UnmapQueue::~UnmapQueue() {
  while (!empty()) Step();
}

void UnmapQueue::Add(std::span<std::byte> mapping) {
  mappings_.push_back(mapping);
  Step();
}

void UnmapQueue::Step() {
  std::span<std::byte>& last = mappings_.back();
  const size_t left = (last.size() - 1) / kStepBytes * kStepBytes;
  munmap(last.data() + left, last.size() - left);
  last = last.first(left);
  if (last.empty()) mappings_.pop_back();
}

}  // namespace crossmesh
