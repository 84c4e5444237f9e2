#pragma once

#include <cstddef>
#include <vector>

namespace crossmesh {

// The ends of a lane: a NIC here and a NIC there.
struct LanePair {
  size_t local = 0;
  size_t remote = 0;
  friend bool operator==(const LanePair&, const LanePair&) = default;
};

inline constexpr size_t kLanesMax = 16;

// The lanes between `local` NICs here and `remote` there, both at least one: one for each pair.
// Where these would be more than kLanesMax, only as many as the side with more NICs has, so that
// each of them has one: with 8 and 4 NICs these are (0, 0), (1, 1), ... (4, 0), ... (7, 3). The
// other side, with the arguments exchanged, finds the same lanes. (0, 0) comes first.
std::vector<LanePair> LanePairs(size_t local, size_t remote);

}  // namespace crossmesh
