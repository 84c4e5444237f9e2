#include "planner/parallelism/grid_ranking.h"

#include "common/testing/status_matchers.h"
#include "planner/parallelism/cluster_tables.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

StepModel StepOnNodes(const Training& training, int64_t devices, int64_t experts = 0) {
  Transformer model = PlainTransformer("", 12, 3072, 24);
  model.experts = experts;
  model.experts_per_token = experts > 0 ? 2 : 0;
  const PublishedCluster& cluster = **FindCluster("h100_8x400g_theory");
  return *StepModel::Create(model, training, *FindDevicePreset("h100"),
                            *RatesOfCluster(cluster, devices));
}

Training LongBatch(int64_t batch) { return {.batch = batch, .sequence = 2048}; }

TEST(GridRankingTest, EveryFactorisationIsRankedOrRefused) {
  // Ways to give n equal primes to seven axes, n + 6 over 6; of unlike primes each by itself.
  const struct {
    int64_t devices;
    size_t grids;
  } counts[] = {{1, 1}, {2, 7}, {12, 28 * 7}, {64, 924}, {30, 343}, {1024, 8008}};
  for (const auto& [devices, grids] : counts) {
    const GridRanking ranking = RankGrids(StepOnNodes(LongBatch(512), devices, 8));
    EXPECT_EQ(ranking.feasible.size() + ranking.refused.size(), grids) << devices;
    std::set<Grid> seen;
    for (const RankedGrid& grid : ranking.feasible) seen.insert(grid.shape.grid);
    for (const RefusedGrid& refused : ranking.refused) seen.insert(refused.grid);
    EXPECT_EQ(seen.size(), grids);
    for (const Grid& grid : seen) EXPECT_EQ(grid.devices(), devices);
    const std::vector<int64_t> by_rule = ranking.CountsByRule();
    EXPECT_EQ(std::accumulate(by_rule.begin(), by_rule.end(), int64_t{0}),
              static_cast<int64_t>(ranking.refused.size()));
  }
}

TEST(GridRankingTest, TheRankingIsThatOfPricesOneByOne) {
  const StepModel step = StepOnNodes(LongBatch(96), 48);
  const GridRanking ranking = RankGrids(step);
  ASSERT_GT(ranking.feasible.size(), 20);
  double before = 0;
  for (const RankedGrid& ranked : ranking.feasible) {
    EXPECT_GE(ranked.seconds, before);
    before = ranked.seconds;
    EXPECT_LE(ranked.memory_bytes, static_cast<double>(step.device().memory_bytes));
    // The best microbatch of all that there are.
    double best = -1;
    for (int64_t microbatch = 1; microbatch <= 96; ++microbatch) {
      const Grid& grid = ranked.shape.grid;
      if (FirstFailure(step.model(), step.training(), grid, microbatch)) continue;
      const GridShape shape = ShapeOf(step.model(), step.training(), grid, microbatch);
      if (step.Memory(shape).total() > 80e9) continue;
      const double seconds = step.Price(shape).seconds();
      if (best < 0 || seconds < best) best = seconds;
    }
    EXPECT_EQ(ranked.seconds, best) << ranked.shape.grid;
    EXPECT_EQ(ranked.seconds, step.Price(ranked.shape).seconds());
  }
  for (const RefusedGrid& refused : ranking.refused) {
    const auto rule = FirstFailure(step.model(), step.training(), refused.grid);
    EXPECT_EQ(rule.value_or(GridRule::kMemory), refused.rule);
    EXPECT_THAT(ExplainRefusal(step, refused, ranking.memory_bytes_max), HasSubstr("nearest"));
  }
}

TEST(GridRankingTest, EqualRequestsHaveEqualRankings) {
  const auto grids = [] {
    std::vector<Grid> order;
    for (const RankedGrid& grid : RankGrids(StepOnNodes(LongBatch(512), 256)).feasible) {
      order.push_back(grid.shape.grid);
    }
    return order;
  };
  EXPECT_EQ(grids(), grids());
}

TEST(GridRankingTest, LimitsOfAxesLeaveFewerGrids) {
  GridLimits limits;
  limits.most[GridAxis::kPipeline] = 1;
  limits.most[GridAxis::kR] = 2;
  const GridRanking ranking = RankGrids(StepOnNodes(LongBatch(96), 48), limits);
  EXPECT_FALSE(ranking.feasible.empty());
  for (const RankedGrid& grid : ranking.feasible) {
    EXPECT_EQ(grid.shape.grid.pipeline(), 1);
    EXPECT_LE(grid.shape.grid.r(), 2);
  }
  limits.most[GridAxis::kData] = 1;
  limits.most[GridAxis::kZ] = 1;
  limits.most[GridAxis::kC] = 1;
  limits.most[GridAxis::kContext] = 1;
  limits.most[GridAxis::kExpert] = 1;
  const StepModel step = StepOnNodes(LongBatch(96), 48);
  EXPECT_THAT(NoGridError(step, RankGrids(step, limits)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("leave none")));
}

TEST(GridRankingTest, WhereNothingFitsTheLeastMemoryIsNamed) {
  const StepModel step = StepOnNodes(LongBatch(8), 8);
  const GridRanking ranking = RankGrids(step, {.memory_bytes_max = 1'000'000'000});
  ASSERT_TRUE(ranking.feasible.empty());
  double least = -1;
  std::string grid;
  for (const RefusedGrid& refused : ranking.refused) {
    if (refused.rule != GridRule::kMemory) continue;
    const GridShape shape = ShapeOf(step.model(), step.training(), refused.grid, 1);
    const double bytes = step.Memory(shape).total();
    if (least < 0 || bytes < least) {
      least = bytes;
      grid = ToString(refused.grid);
    }
  }
  ASSERT_NE(ranking.LeastMemory(), nullptr);
  EXPECT_EQ(ranking.LeastMemory()->memory_bytes, least);
  EXPECT_THAT(
      NoGridError(step, ranking),
      StatusIs(absl::StatusCode::kResourceExhausted,
               AllOf(HasSubstr("expected one that fits in 1.0 GB, found none: the least is"),
                     HasSubstr(grid))));
}

TEST(GridRankingTest, WhereNoGridKeepsToTheRulesTheyAreCounted) {
  const StepModel step = StepOnNodes(LongBatch(7), 11);
  EXPECT_THAT(NoGridError(step, RankGrids(step)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("heads 1, features 1"),
                             HasSubstr("batch 1; the closest is data=11: "),
                             HasSubstr("does not divide 7 sequences of the batch; the nearest"))));
}

TEST(GridRankingTest, OneGridIsPricedAsInTheRanking) {
  const StepModel step = StepOnNodes(LongBatch(96), 48);
  const GridRanking ranking = RankGrids(step);
  const RankedGrid& best = ranking.feasible.front();
  ASSERT_OK_AND_ASSIGN(const RankedGrid priced, PriceGrid(step, best.shape.grid));
  EXPECT_EQ(priced.seconds, best.seconds);
  EXPECT_EQ(priced.shape, best.shape);
  EXPECT_THAT(PriceGrid(step, *ParseGrid("r=2")).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("expected sizes whose product is the 48 devices, found 2")));
  EXPECT_THAT(PriceGrid(step, *ParseGrid("r=48")).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("does not divide 24 heads")));
}

TEST(GridRankingTest, AGridThatDoesNotFitNamesTheChangeThatWould) {
  const Grid grid = *ParseGrid("data=48");
  Training training = LongBatch(48);
  const StepModel step = StepOnNodes(training, 48);
  const GridLimits limits{.memory_bytes_max = 25'000'000'000};
  const absl::Status refused = PriceGrid(step, grid, limits).status();
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kResourceExhausted,
                                AllOf(HasSubstr("grid data=48: needs "), HasSubstr(" of 25.0 GB"),
                                      HasSubstr("the nearest fix: zero=1"))));
  training.zero = 1;
  EXPECT_OK(PriceGrid(StepOnNodes(training, 48), grid, limits).status());
  // Nothing of the kind helps.
  EXPECT_THAT(
      PriceGrid(step, grid, {.memory_bytes_max = 1'000'000}).status(),
      StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("more, or a grid that cuts")));
  // Priced all the same, where that is asked for.
  ASSERT_OK_AND_ASSIGN(const RankedGrid priced, PriceGrid(step, grid, limits, true));
  EXPECT_GT(priced.memory_bytes, 25e9);
}

}  // namespace
}  // namespace crossmesh
