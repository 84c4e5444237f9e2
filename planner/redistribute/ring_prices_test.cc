#include "planner/redistribute/ring_prices.h"

#include "common/mesh/shape.h"
#include "planner/redistribute/atom_sizes.h"
#include "planner/redistribute/redistribution_request.h"

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

// node=2, gpu=4, of 64 elements.
TypeSpace TwoNodes() {
  RedistributionRequest request{.axes = {{"node", 2}, {"gpu", 4}},
                                .shape = Shape::Create(std::vector<int64_t>{64}).value(),
                                .item_bytes = 4};
  request.source.dimensions = {{{.axis = 0, .size = 2}, {.axis = 1, .size = 4}}};
  request.destination.dimensions = {{}};
  return {request, NeededAtoms(request)};
}

RingCost Cost() {
  return {.inside = {{.axis = 0, .before = 2, .size = 1}, {.axis = 1, .size = 4}},
          .seconds_per_step = 10,
          .seconds_per_pass = 1,
          .seconds_between_hosts = 2,
          .bytes_per_second_max = 1000,
          .bytes_per_second_inside = 100,
          .bytes_per_second_between_hosts = 10,
          .hashed_bytes_per_second = 50,
          .adds = true};
}

TEST(RingPricesTest, ARingLeavesAHostByTheNicsOfAllItsGpusThere) {
  const TypeSpace space = TwoNodes();
  const RingPrices prices(space, Cost());
  const std::vector<int32_t> node = {0};
  const std::vector<int32_t> gpu = {1};
  const std::vector<int32_t> all = {0, 1};
  const auto gather = [&](const std::vector<int32_t>& atoms) {
    return prices.Seconds(StepKind::kAllGather, atoms, 400);
  };
  EXPECT_DOUBLE_EQ(gather(gpu), 10 + 3 * (1 + 400 / 100.0) + 4 * 400 / 50.0);
  EXPECT_DOUBLE_EQ(gather(node), 10 + 1 * (3 + 400 / 10.0) + 2 * 400 / 50.0);
  EXPECT_DOUBLE_EQ(gather(all), 10 + 7 * (3 + 400 / 40.0) + 8 * 400 / 50.0);
  RingCost narrow = Cost();
  narrow.bytes_per_second_max = 20;
  EXPECT_DOUBLE_EQ(RingPrices(space, narrow).Seconds(StepKind::kAllGather, all, 400),
                   10 + 7 * (3 + 400 / 20.0) + 8 * 400 / 50.0);
  EXPECT_EQ(prices.PassSeconds(0), 3);
  EXPECT_EQ(prices.PassSeconds(1), 1);
}

TEST(RingPricesTest, SumsAreNotHashedAndAnAllReduceIsOneInPartsAndAGather) {
  const TypeSpace space = TwoNodes();
  const RingPrices prices(space, Cost());
  const std::vector<int32_t> gpu = {1};
  const double scattered = prices.Seconds(StepKind::kReduceScatter, gpu, 1600);
  EXPECT_DOUBLE_EQ(scattered, 10 + 3 * (1 + 400 / 100.0));
  EXPECT_DOUBLE_EQ(prices.Seconds(StepKind::kAllReduce, gpu, 1600),
                   scattered + prices.Seconds(StepKind::kAllGather, gpu, 400));
  // The largest piece counts.
  EXPECT_EQ(prices.Seconds(StepKind::kAllReduce, gpu, 1597),
            prices.Seconds(StepKind::kAllReduce, gpu, 1600));
}

TEST(RingPricesTest, OtherStepsAndSumsThatNcclMayNotMakeAreNoCollectives) {
  const TypeSpace space = TwoNodes();
  const std::vector<int32_t> gpu = {1};
  for (const StepKind kind :
       {StepKind::kAllToAll, StepKind::kPermute, StepKind::kSlice, StepKind::kRelay}) {
    EXPECT_EQ(RingPrices(space, Cost()).Seconds(kind, gpu, 1600), RingPrices::kNone);
  }
  RingCost fixed = Cost();
  fixed.adds = false;
  EXPECT_EQ(RingPrices(space, fixed).Seconds(StepKind::kReduceScatter, gpu, 1600),
            RingPrices::kNone);
  EXPECT_LT(RingPrices(space, fixed).Seconds(StepKind::kAllGather, gpu, 1600), RingPrices::kNone);
  RingCost mean = Cost();
  mean.summands_min = 8;
  EXPECT_EQ(RingPrices(space, mean).Seconds(StepKind::kAllReduce, gpu, 1600), RingPrices::kNone);
  EXPECT_LT(RingPrices(space, mean).Seconds(StepKind::kAllReduce, std::vector<int32_t>{0, 1}, 1600),
            RingPrices::kNone);
}

// The same, by the offsets of all elements of the array.
bool LieInOrderByElements(const Shape& shape, const std::vector<PieceCut>& cuts) {
  std::vector<int64_t> piece_of;  // of each element of the array, in its memory
  for (int64_t element = 0; element < shape.elements(); ++element) {
    bool is_of_array = true;
    int64_t piece = 0;
    for (const PieceCut& cut : cuts) {
      int64_t index = element;
      for (int d = shape.rank() - 1; d > cut.dimension; --d) index /= shape[d];
      const int64_t coordinate = index % shape[cut.dimension] / cut.stride % cut.size;
      if (cut.is_piece) {
        piece = piece * cut.size + coordinate;
      } else {
        is_of_array = is_of_array && coordinate == 0;
      }
    }
    if (is_of_array) piece_of.push_back(piece);
  }
  std::set<int64_t> seen = {piece_of.front()};
  for (size_t i = 1; i < piece_of.size(); ++i) {
    if (piece_of[i] != piece_of[i - 1] && !seen.insert(piece_of[i]).second) return false;
  }
  return true;
}

// All ways to cut two dimensions of 8 and 6 at three digits, of the array or of its pieces.
TEST(RingPricesTest, PiecesLieInOrderWhereEachIsInOnePieceOfMemory) {
  const Shape shape = Shape::Create(std::vector<int64_t>{8, 6}).value();
  const std::vector<PieceCut> digits = {{0, 4, 2}, {0, 2, 2}, {0, 1, 2}, {1, 3, 2}, {1, 1, 3}};
  int in_order = 0;
  for (int choice = 0; choice < 243; ++choice) {  // of each digit: no cut, of the array, of pieces
    std::vector<PieceCut> cuts;
    bool has_pieces = false;
    for (int i = 0, rest = choice; i < 5; ++i, rest /= 3) {
      if (rest % 3 == 0) continue;
      cuts.push_back(digits[i]);
      cuts.back().is_piece = rest % 3 == 2;
      has_pieces |= rest % 3 == 2;
    }
    if (!has_pieces) {
      EXPECT_FALSE(LieInOrder(shape, cuts));
      continue;
    }
    EXPECT_EQ(LieInOrder(shape, cuts), LieInOrderByElements(shape, cuts)) << choice;
    in_order += LieInOrder(shape, cuts) ? 1 : 0;
  }
  EXPECT_GT(in_order, 20);
}

}  // namespace
}  // namespace crossmesh
