#pragma once

#include <compare>
#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

namespace crossmesh {

// Names a rank: a GPU, and the process that drives it for now. A process that takes its place has
// another incarnation, and so another name. Immutable.
struct RankName {
  std::string gpu;           // its UUID, or that of a share (gpu_share.h)
  uint64_t incarnation = 0;  // of the process

  std::string ToString() const;  // "GPU-4bd8#17"

  friend auto operator<=>(const RankName&, const RankName&) = default;
  friend std::ostream& operator<<(std::ostream& out, const RankName& name) {
    return out << name.ToString();
  }
};

// What a communicator is known by, at the controller and in every process that has a rank of it.
// Immutable.
struct CommunicatorKey {
  std::vector<RankName> ranks;  // rank 0 first
  std::string purpose;          // tells apart several of one group: "relay"
  uint64_t epoch = 0;           // of the controller that ordered it

  // "relay@4[GPU-4bd8#17,GPU-90c1#3]"; of more than four ranks the first three, and how many more.
  std::string ToString() const;

  friend auto operator<=>(const CommunicatorKey&, const CommunicatorKey&) = default;
  friend std::ostream& operator<<(std::ostream& out, const CommunicatorKey& key) {
    return out << key.ToString();
  }
};

}  // namespace crossmesh
