#include "worker/executor/blocked_tile.h"

#include "common/mesh/box.h"
#include "common/mesh/conversion.h"

#include <algorithm>
#include <iterator>

namespace crossmesh {
namespace {

int64_t BlocksOf(int64_t elements) {
  return (elements + kScaleBlockLength - 1) / kScaleBlockLength;
}

}  // namespace

BlockedTile::BlockedTile(const Tile& tile) {
  int64_t elements = 0;
  for (const Box& box : tile) {
    if (box.empty()) continue;
    const int64_t rows = box[box.rank() - 2].length();
    const int64_t columns = box[box.rank() - 1].length();
    stacks_.push_back({.matrices = box.volume() / (rows * columns),
                       .rows = rows,
                       .columns = columns,
                       .first_element = elements,
                       .first_block = blocks(),
                       .block_rows = BlocksOf(rows),
                       .block_columns = BlocksOf(columns)});
    elements += box.volume();
  }
}

BlockedTile::Place BlockedTile::At(int64_t element) const {
  // Stacks ascend by their first element: the last one that begins at or before it has it.
  const Stack& stack =
      *std::prev(std::ranges::upper_bound(stacks_, element, {}, &Stack::first_element));
  const int64_t row = (element - stack.first_element) / stack.columns;  // of all matrices
  const int64_t column = (element - stack.first_element) % stack.columns;
  const int64_t row_of_blocks =
      row / stack.rows * stack.block_rows + row % stack.rows / kScaleBlockLength;
  const int64_t row_left = stack.columns - column;
  return {
      .block = stack.first_block + row_of_blocks * stack.block_columns + column / kScaleBlockLength,
      .row_left = row_left,
      .block_row_left = std::min(row_left, kScaleBlockLength - column % kScaleBlockLength)};
}

}  // namespace crossmesh
