// Our model, with what the published ones leave out turned off, is theirs.

#include "planner/parallelism/cluster_tables.h"
#include "planner/parallelism/published/axonn_model.h"
#include "planner/parallelism/published/tensor_families.h"
#include "planner/parallelism/step_model.h"
#include "planner/parallelism/testing/parallelism_vectors.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

Transformer FourBlocks() { return PlainTransformer("", 4, 4096, 64); }

TEST(ModelsAgreeTest, WithoutOverlapsCommunicationIsThatOfTheAuthorsModel) {
  int grids = 0;
  for (const char* name : {"perlmutter_measured", "frontier_measured", "alps_theory"}) {
    const PublishedCluster& cluster = **FindCluster(name);
    for (const int64_t devices : {16, 64}) {
      const AxonnRankingRequest request{
          .model = FourBlocks(), .devices = devices, .batch = 64, .sequence = 512};
      for (const auto& [grid, seconds] : RankAsAxonn(request, cluster)) {
        Training training{.batch = 64,
                          .sequence = 512,
                          .microbatch = 64 / grid.sample_groups(),
                          .recompute = Recompute::kFull,
                          .overlaps = kNoOverlaps};
        const auto step = StepModel::Create(FourBlocks(), training, *FindDevicePreset("a100"),
                                            *RatesOfCluster(cluster, devices));
        ASSERT_TRUE(step.ok());
        const GridShape shape = ShapeOf(step->model(), training, grid, training.microbatch);
        const StepPrice price = step->Price(shape);
        EXPECT_TRUE(IsNear(price.communication_seconds(), seconds, 1e-9)) << name << " " << grid;
        EXPECT_EQ(price.exposed(), price.communication_seconds());
        ++grids;
      }
    }
  }
  EXPECT_GT(grids, 300);
}

// What a device sends over c, r and z in the blocks of a step.
double TensorBytes(const Training& training, const Grid& grid) {
  const auto step =
      StepModel::Create(FourBlocks(), training, *FindDevicePreset("a100"),
                        *RatesOfCluster(**FindCluster("alps_theory"), grid.devices()));
  const PerAxis<double> bytes =
      step->Price(ShapeOf(step->model(), training, grid, training.microbatch)).wire_bytes;
  return bytes[GridAxis::kC] + bytes[GridAxis::kR] + bytes[GridAxis::kZ];
}

TEST(ModelsAgreeTest, TheCubeSendsWhatItsProductsSay) {
  for (const int64_t q : {2, 4}) {
    Grid grid;
    grid[GridAxis::kC] = grid[GridAxis::kR] = grid[GridAxis::kZ] = q;
    Training training{.batch = 16,
                      .sequence = 512,
                      .microbatch = 16 / q,
                      .activations = ActivationForm::kScattered};
    double once = 0;
    double gradients = 0;
    for (const BlockMatrix& matrix : MatricesOf(FourBlocks())) {
      const CubeProduct product{.q = q, .m = 16 * 512, .k = matrix.k, .n = matrix.n};
      once += 4 * 2 * static_cast<double>(product.ForwardElements());
      // Both products of the backward pass gather dC; we gather it once for both.
      const auto forms = CollectivesOf(product, CubeForm::kWeightGradient);
      ASSERT_EQ(forms[1].matrix, "dC");
      gradients += 4 * 2 * static_cast<double>(forms[1].wire_elements);
    }
    EXPECT_TRUE(IsNear(TensorBytes(training, grid), 3 * once - gradients, 1e-9));
    training.keep_gathered = true;
    training.cached_layers = 4;
    EXPECT_TRUE(IsNear(TensorBytes(training, grid), 2 * once, 1e-9));
  }
}

TEST(ModelsAgreeTest, GridsSendWhatTheClosedFormCounts) {
  for (const char* text : {"c=2,r=8,z=4", "r=2,z=32", "c=4,r=4,z=4", "z=64", "c=8,r=8"}) {
    const Grid grid = *ParseGrid(text);
    Training training{.batch = 64, .sequence = 512};
    training.microbatch = 64 / grid.z();
    EXPECT_TRUE(IsNear(TensorBytes(training, grid),
                       4 * 2 * ElementsOnGrid(grid, 64 * 512, 4096).total(), 1e-9))
        << text;
  }
}

TEST(ModelsAgreeTest, MegatronsPairIsRAloneAndDepthAloneIsFsdp) {
  Training training{.batch = 8, .sequence = 512, .microbatch = 8};
  const double tokens = 8 * 512;
  // Two sums of m h in either pass.
  EXPECT_TRUE(IsNear(TensorBytes(training, *ParseGrid("r=8")),
                     4 * 2 * 4 * 2 * 7.0 / 8 * tokens * 4096, 1e-9));
  training.microbatch = 1;
  EXPECT_TRUE(IsNear(TensorBytes(training, *ParseGrid("z=8")),
                     4 * 2 * 3 * 7.0 / 8 * 12 * 4096 * 4096, 1e-9));
}

TEST(ModelsAgreeTest, TheFormulasOfFamiliesNeedTheirCounts) {
  EXPECT_FALSE((CubeProduct{.q = 2, .m = 6, .k = 8, .n = 8}).Validate().ok());
  EXPECT_FALSE((CubeProduct{.q = 2, .m = 8, .k = 7, .n = 8}).Validate().ok());
  EXPECT_FALSE((CubeProduct{.q = 2, .m = 8, .k = 8, .n = 6}).Validate().ok());
  // No square, no cube, and no 2.5-D either.
  EXPECT_EQ(TensorFamilies(6, 1024, 1024).size(), 1);
}

}  // namespace
}  // namespace crossmesh
