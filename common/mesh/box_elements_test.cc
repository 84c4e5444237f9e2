#include "common/mesh/box_elements.h"

#include <utility>
#include <vector>

#include <gmock/gmock.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;

std::vector<std::pair<int64_t, int64_t>> ElementsIn(const Tile& tile) {
  std::vector<std::pair<int64_t, int64_t>> elements;
  for (const Box& box : tile) {
    const Interval columns = box.rank() > 1 ? box[1] : Interval{0, 1};
    for (int64_t row = box[0].begin; row < box[0].end; ++row) {
      for (int64_t column = columns.begin; column < columns.end; ++column) {
        elements.emplace_back(row, column);
      }
    }
  }
  return elements;
}

TEST(BoxElementsTest, AnyPartIsInTheOrderOfMemory) {
  for (const Box& box :
       {Box({{3, 7}, {2, 5}}), Box({{5, 6}, {0, 9}}), Box({{1, 9}, {4, 5}}), Box({{2, 8}})}) {
    const std::vector<std::pair<int64_t, int64_t>> all = ElementsIn({box});
    for (int64_t begin = 0; begin <= std::ssize(all); ++begin) {
      for (int64_t end = begin; end <= std::ssize(all); ++end) {
        Tile tile;
        AppendElements(box, {begin, end}, tile);
        ASSERT_EQ(ElementsIn(tile), decltype(all)(all.begin() + begin, all.begin() + end))
            << begin << " to " << end;
        EXPECT_LE(tile.size(), 3);
      }
    }
  }
}

TEST(BoxElementsTest, WholeRowsAreOneBoxAfterWhatWasThere) {
  Tile tile = {Box({{0, 1}, {0, 1}})};
  AppendElements(Box({{4, 8}, {10, 13}}), {1, 10}, tile);
  EXPECT_THAT(tile, ElementsAre(Box({{0, 1}, {0, 1}}), Box({{4, 5}, {11, 13}}),
                                Box({{5, 7}, {10, 13}}), Box({{7, 8}, {10, 11}})));
}

}  // namespace
}  // namespace crossmesh
