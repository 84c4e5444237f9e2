// The six small meshes whose layouts are studied pair by pair: all ways to cut dimensions,
// contiguous and even, by prime parts of axes.

#pragma once

#include "planner/redistribute/redistribution_request.h"

#include <cstdint>
#include <string>
#include <vector>

namespace crossmesh {

struct StudiedMesh {
  std::string name;  // e.g. "4x2, 2 dimensions"
  std::vector<Axis> axes;
  Shape shape;  // each dimension as long as the mesh has devices
  std::vector<RedistributionEnd> layouts;

  int64_t pairs() const { return static_cast<int64_t>(layouts.size() * (layouts.size() - 1)); }
  RedistributionRequest Request(size_t source, size_t destination) const;
};

// 2x2, 2x3 and 2x2x2 over two dimensions, with layouts that have partial sums among them.
std::vector<StudiedMesh> StudiedMeshesWithSums();

// 2x2, 2x3, 4x2, 2x2x2 and 2x2x3 over two dimensions, 2x2 over three: 7,618 ordered pairs.
std::vector<StudiedMesh> StudiedMeshes();

}  // namespace crossmesh
