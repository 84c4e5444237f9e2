// Vectors on the diagonal of c and r, in the programs of grids.

#include "planner/parallelism/grid_shape.h"
#include "planner/parallelism/network_rates.h"
#include "planner/parallelism/programs/grid_program.h"
#include "planner/parallelism/step_model.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

// A step with vectors on the diagonal, of widths that 2, 3 and 4 cut twice.
class DiagonalVectorsTest : public ::testing::Test {
 protected:
  static GridProgramRequest StepOn(absl::string_view text) {
    const Grid grid = *ParseGrid(text);
    std::vector<DeviceId> devices;
    for (int32_t i = 0; i < grid.devices(); ++i) devices.push_back({.host = "a", .index = i});
    GridProgramRequest request{.model = PlainTransformer("small", 4, kHidden, 12),
                               .training = {.batch = 72,
                                            .sequence = 12,
                                            .microbatch = 72 / grid.sample_groups(),
                                            .activations = ActivationForm::kScattered,
                                            .keep_gathered = true,
                                            .vectors = VectorForm::kDiagonal},
                               .device = *FindDevicePreset("a100")};
    request.model.vocabulary = 144;
    request.stages.push_back({.grid = grid,
                              .mesh = std::make_shared<const Mesh>(*MeshOfGrid(grid, devices)),
                              .layers = 4});
    return request;
  }

  // The tiles of a transfer of vectors that `axis` cuts; none where there is no such transfer.
  struct Sides {
    std::vector<Tile> source;
    std::vector<Tile> destination;
    int64_t elements = 0;  // of a vector each
    int64_t item_bytes = 0;
  };
  static Sides SidesOf(const GridProgramRequest& request, absl::string_view name) {
    const absl::StatusOr<LayerProgram> program = MakeGridProgram(request);
    EXPECT_EQ(program.status(), absl::OkStatus());
    const auto found = std::ranges::find(program->transfers, name, &LayerProgram::Transfer::name);
    const Mesh& mesh = *request.stages[0].mesh;
    if (found == program->transfers.end()) {
      return {std::vector<Tile>(mesh.slots()), std::vector<Tile>(mesh.slots())};
    }
    const auto& [tensor, source, destination] = found->tensors[0];
    return {source.Tiles(mesh, tensor.shape), destination.Tiles(mesh, tensor.shape),
            tensor.shape[tensor.shape.rank() - 1], ItemBytes(tensor.type)};
  }

  static constexpr int64_t kHidden = 144;
};

// On q^3 devices, by the places of the cube: i is z, j is r and l is c. Of a vector that either of
// them cuts, a rank with j = l has the i-th piece of the j-th (arXiv 2105.14450).
TEST_F(DiagonalVectorsTest, LieOnTheDiagonalOfTheCubesFace) {
  for (const int64_t q : {2, 3}) {
    const GridProgramRequest request = StepOn(absl::StrCat("c=", q, ",r=", q, ",z=", q));
    const Mesh& mesh = *request.stages[0].mesh;
    for (const char* axis : {"c", "r"}) {
      const Sides spread = SidesOf(request, absl::StrCat("vectors_of_", axis, ".spread"));
      const Sides reduce = SidesOf(request, absl::StrCat("vectors_of_", axis, ".reduce"));
      // Of each layer two norms and two biases, and the last norm; biases of 3 h and 4 h.
      EXPECT_EQ(spread.elements, (*axis == 'c' ? 4 * 6 + 2 : 4 * 7) * kHidden);
      const int64_t piece = spread.elements / (q * q);
      for (int64_t slot = 0; slot < mesh.slots(); ++slot) {
        const int64_t i = mesh.Coordinate(slot, *mesh.FindAxis("z"));
        const int64_t j = mesh.Coordinate(slot, *mesh.FindAxis("r"));
        const int64_t l = mesh.Coordinate(slot, *mesh.FindAxis("c"));
        const Interval own{(j * q + i) * piece, (j * q + i + 1) * piece};
        const Tile stored = {Box({own})};
        const Tile summands = {Box({Interval{0, q}, own})};
        EXPECT_EQ(spread.source[slot], j == l ? stored : Tile()) << axis << " at " << slot;
        EXPECT_EQ(reduce.destination[slot], j == l ? summands : Tile()) << axis << " at " << slot;
      }
    }
  }
}

// Of parameters, a device that has none needs all that it uses; of gradients, each takes part in a
// scatter, and one of the diagonal takes what the others of its line have.
TEST_F(DiagonalVectorsTest, MoveAsTheCostModelSays) {
  for (const char* text : {"c=2,r=2,z=2", "c=4,r=4,z=2,data=3", "c=3,r=3", "z=4"}) {
    const GridProgramRequest request = StepOn(text);
    const Grid& grid = request.stages[0].grid;
    double found = 0;
    for (const char* axis : {"c", "r"}) {
      const std::string name = absl::StrCat("vectors_of_", axis);
      // The first device is on the diagonal, and the second one is not, where there is another.
      const size_t slot = grid.c() > 1 ? 1 : 0;
      const Sides spread = SidesOf(request, absl::StrCat(name, ".spread"));
      const Sides scatter = SidesOf(request, absl::StrCat(name, ".scatter"));
      const Sides reduce = SidesOf(request, absl::StrCat(name, ".reduce"));
      found += static_cast<double>(
          spread.item_bytes * (Volume(spread.destination[slot]) - Volume(spread.source[slot])) +
          scatter.item_bytes * (grid.z() - 1) * Volume(scatter.source[0]) / grid.z() +
          reduce.item_bytes * (Volume(reduce.destination[0]) - Volume(reduce.source[0])));
    }
    double expected = 0;
    const StepModel model =
        *StepModel::Create(request.model, request.training, request.device,
                           *RatesOfNetwork(request.stages[0].mesh->devices(), Topology()));
    for (const CollectiveUse& use : model.Collectives(
             ShapeOf(request.model, request.training, grid, request.training.microbatch))) {
      // Embeddings are copied, and summed as such.
      if (use.object != "vectors" || use.op == CollectiveOp::kAllReduce) continue;
      expected += use.count * WireBytes(use.op, grid[use.axis], use.message_bytes);
    }
    EXPECT_NEAR(found, expected, 1e-9 * expected) << text;
    EXPECT_GT(found, 0) << text;
  }
}

}  // namespace
}  // namespace crossmesh
