#pragma once

#include "common/mesh/box.h"
#include "common/mesh/layout.h"
#include "common/mesh/mesh.h"
#include "common/mesh/shape.h"

#include <cstdint>
#include <vector>

#include <nanobind/nanobind.h>

namespace crossmesh {

// A box is a tuple of slices, which indexes an array of the whole tensor; a tile is a list of them.
nanobind::tuple ToPython(const Box& box);
nanobind::list ToPython(const Tile& tile);
nanobind::dict ToPython(const Coordinates& coordinates);

// A sequence of slices or of pairs (begin, end). Raises InvalidArgumentError for others.
Box BoxOf(nanobind::handle box);
Shape ShapeOf(const std::vector<int64_t>& lengths);

}  // namespace crossmesh
