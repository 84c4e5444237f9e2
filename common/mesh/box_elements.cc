#include "common/mesh/box_elements.h"

#include <algorithm>

namespace crossmesh {

void AppendElements(const Box& box, Interval elements, Tile& tile) {
  const bool has_columns = box.rank() > 1;
  const int64_t width = has_columns ? box[1].length() : 1;
  for (int64_t element = elements.begin; element < elements.end;) {
    const int64_t column = element % width;
    const int64_t left = elements.end - element;
    const int64_t whole_rows = column == 0 && left >= width ? left / width : 1;
    const int64_t length = std::min(width - column, left);
    const int64_t row = box[0].begin + element / width;
    const Interval rows{row, row + whole_rows};
    const int64_t first = has_columns ? box[1].begin + column : 0;
    tile.push_back(has_columns ? Box({rows, Interval{first, first + length}}) : Box({rows}));
    element += whole_rows * length;
  }
}

}  // namespace crossmesh
