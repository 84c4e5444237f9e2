#include "worker/transport/striped/lane_pairs.h"

#include <algorithm>

namespace crossmesh {

std::vector<LanePair> LanePairs(size_t local, size_t remote) {
  std::vector<LanePair> pairs;
  if (local * remote > kLanesMax) {
    for (size_t i = 0; i < std::max(local, remote); ++i) pairs.push_back({i % local, i % remote});
    return pairs;
  }
  for (size_t i = 0; i < local; ++i) {
    for (size_t j = 0; j < remote; ++j) pairs.push_back({i, j});
  }
  return pairs;
}

}  // namespace crossmesh
