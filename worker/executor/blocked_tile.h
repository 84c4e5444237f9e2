#pragma once

#include "common/mesh/layout.h"

#include <cstdint>
#include <span>
#include <vector>

namespace crossmesh {

// The scale blocks of a tile of a tensor that is sent as F8_E4M3 (common/mesh/conversion.h): which
// block each element is in. Elements and blocks are counted in the order of memory, over the boxes
// of the tile, so a block's number is the place of its scale in the tile of scales. Immutable.
//
// Example: a tile [0:200, 0:300] has the blocks 0, 1, 2 in its first 128 rows, and 3, 4, 5 below.
class BlockedTile {
 public:
  // A box of the tile: matrices of one shape, one after the other.
  struct Stack {
    int64_t matrices = 0;
    int64_t rows = 0;           // of a matrix
    int64_t columns = 0;        // of a matrix
    int64_t first_element = 0;  // in the tile
    int64_t first_block = 0;    // in the tile
    int64_t block_rows = 0;     // of a matrix
    int64_t block_columns = 0;  // of a matrix

    int64_t elements() const { return matrices * rows * columns; }
    int64_t blocks() const { return matrices * block_rows * block_columns; }
  };
  struct Place {
    int64_t block = 0;
    // Elements from here on: to the end of the matrix's row, and of the block's.
    int64_t row_left = 0;
    int64_t block_row_left = 0;
  };

  // Boxes of a tensor of at least two dimensions, which cut none of its blocks.
  explicit BlockedTile(const Tile& tile);

  // Of the boxes that are not empty.
  std::span<const Stack> stacks() const { return stacks_; }
  int64_t blocks() const {
    return stacks_.empty() ? 0 : stacks_.back().first_block + stacks_.back().blocks();
  }
  // Of an element of the tile. Cost: logarithmic in boxes.
  Place At(int64_t element) const;

 private:
  std::vector<Stack> stacks_;
};

}  // namespace crossmesh
