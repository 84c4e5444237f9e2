#include "common/plan/chunk_cuts.h"

#include <algorithm>

namespace crossmesh {
namespace {

constexpr int64_t kSharesPerChunk = 4;  // as many tensors at least share a chunk
constexpr int64_t kGranule = 4096;      // chunks are whole pages, but for the last

int64_t DivideUp(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

ChunkCuts::ChunkCuts(const TensorTable& tensors, const Slicing& slicing, ClassIndex slice_class,
                     int64_t chunk_bytes)
    : chunk_bytes_(chunk_bytes) {
  std::vector<int64_t> bytes_of_group(slicing.grids(), 0);
  for (int32_t group = 0; group < slicing.grids(); ++group) {
    const int64_t place = slicing.grid(group).FindClass(slice_class);
    if (place >= 0) bytes_of_group[group] = slicing.grid(group).bytes[place];
  }
  int64_t offset = 0;
  for (const int32_t group : tensors.group_of_tensor()) {
    const int64_t bytes = group < 0 ? 0 : bytes_of_group[group];
    if (bytes * kSharesPerChunk >= chunk_bytes) {
      // Two large tensors in a row share the edge between them.
      if (edges_.empty() || edges_.back() != offset) edges_.push_back(offset);
      edges_.push_back(offset + bytes);
    }
    offset += bytes;
  }
}

void ChunkCuts::AppendCuts(int64_t begin, int64_t end, std::vector<int64_t>& cuts) const {
  auto edge = std::upper_bound(edges_.begin(), edges_.end(), begin);
  while (begin < end) {
    const int64_t next = edge == edges_.end() ? end : std::min(*edge++, end);
    const int64_t chunks = DivideUp(next - begin, chunk_bytes_);
    const int64_t step = DivideUp(DivideUp(next - begin, chunks), kGranule) * kGranule;
    for (; begin < next; begin += step) cuts.push_back(begin);
    begin = next;
  }
}

}  // namespace crossmesh
