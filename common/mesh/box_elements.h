#pragma once

#include "common/mesh/box.h"
#include "common/mesh/layout.h"

namespace crossmesh {

// Appends the elements [begin, end) of a box of one or two dimensions, counted as they lie in
// memory row by row: the rest of a row, all rows that are whole, and the begin of one, so up to
// three boxes.
void AppendElements(const Box& box, Interval elements, Tile& tile);

}  // namespace crossmesh
