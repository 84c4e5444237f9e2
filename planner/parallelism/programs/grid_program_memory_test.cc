// What the memory model says that gathers and scatters of weights take of a device, against the
// memory that the transfers of programs have.

#include "planner/layers/planned_layers.h"
#include "planner/parallelism/memory_model.h"
#include "planner/parallelism/network_rates.h"
#include "planner/parallelism/programs/grid_program.h"
#include "planner/parallelism/programs/layer_grids_price.h"
#include "planner/pipeline/schedules/interleaved.h"
#include "planner/pipeline/schedules/window_order.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/string_view.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

constexpr absl::string_view kEightHosts = "a.0,b.0,c.0,d.0,e.0,f.0,g.0,h.0";
constexpr int64_t kBatch = 16;
constexpr int64_t kHeldLayers = 4;

// Of the messages of a rank's transfers, on its device that has most.
struct HeldBytes {
  double gathers = 0;
  double scatters = 0;
};

// The tiles of both ends, as the transfer's plan has them: the same for all programs of a grid.
class TileBytes {
 public:
  double Of(const LayerProgram& program, const LayerProgram::Transfer& transfer) {
    const auto [found, is_new] = bytes_.try_emplace(transfer.name);
    if (!is_new) return found->second;
    LayerProgram one = program;
    one.transfers = {transfer};
    const auto planned = PlanLayers(one, Topology());
    EXPECT_TRUE(planned.ok()) << transfer.name << ": " << planned.status();
    const TensorTable& tensors = (*planned)->transfers[0].plan->tensors();
    for (DeviceRank device = 0; device < std::ssize(tensors.devices()); ++device) {
      const auto both = static_cast<double>(tensors.BytesOf(Side::kSource, device) +
                                            tensors.BytesOf(Side::kDestination, device));
      found->second = std::max(found->second, both);
    }
    return found->second;
  }

 private:
  std::map<std::string, double> bytes_;
};

std::vector<HeldBytes> HeldByRank(const LayerProgram& program, TileBytes& tiles) {
  std::vector<HeldBytes> held(program.ranks.size());
  for (const LayerProgram::Transfer& transfer : program.transfers) {
    const bool is_gather = absl::EndsWith(transfer.name, "gather");
    if (!is_gather && !absl::EndsWith(transfer.name, ".scatter")) continue;
    HeldBytes& of = held[program.from(transfer)];
    (is_gather ? of.gathers : of.scatters) += transfer.buffers * tiles.Of(program, transfer);
  }
  return held;
}

Transformer HeldModel() {
  Transformer model = PlainTransformer("held", kHeldLayers, 64, 8);
  model.vocabulary = 128;
  return model;
}

GridProgramRequest HeldRequest(const Grid& grid, const Training& training, int64_t microbatches) {
  const int64_t of_rank = grid.pipeline() > 1 ? training.chunks : 1;
  GridProgramRequest request{.model = HeldModel(),
                             .training = training,
                             .stages = *StagesOfGrid(grid, *ParseDevices(kEightHosts),
                                                     {.layers = kHeldLayers, .of_rank = of_rank}),
                             .microbatches = static_cast<int32_t>(microbatches),
                             .device = *FindDevicePreset("a100")};
  const auto ranks = static_cast<int32_t>(grid.pipeline());
  if (of_rank > 1) {
    request.schedule = *MakeInterleaved({.ranks = ranks,
                                         .chunks = static_cast<int32_t>(of_rank),
                                         .microbatches = request.microbatches});
  } else if (ranks > 1) {
    request.schedule = *MakeOneForwardOneBackward(ranks, request.microbatches);
  }
  return request;
}

// Overlaps as they are, without deferred scatters, and none.
std::vector<Overlaps> OverlapForms() {
  Overlaps at_once;
  at_once.weight_gradients = false;
  at_once.backward_gathers = true;
  return {Overlaps(), at_once, kNoOverlaps};
}

TEST(GridProgramMemoryTest, TheModelsTermsAreWhatTransfersOfProgramsHold) {
  int compared = 0;
  for (const char* text : {"z=8", "r=2,z=4", "c=2,r=2,z=2", "c=2,z=2,data=2", "r=2,z=2,pipeline=2",
                           "z=4,pipeline=2", "r=4,data=2"}) {
    const Grid grid = *ParseGrid(text);
    TileBytes tiles;
    for (int form = 0; form < 12; ++form) {
      Training training{.batch = kBatch, .sequence = 8, .keep_gathered = true};
      training.overlaps = OverlapForms()[form % 3];
      training.pending_scatters = 1 + form / 3;
      // None, some, and all of them.
      training.cached_layers = std::vector<int64_t>{0, 3, kHeldLayers}[(form + form / 3) % 3];
      const int64_t microbatch = form % 2 == 0 ? 1 : kBatch / grid.sample_groups();
      const int64_t microbatches = kBatch / grid.sample_groups() / microbatch;
      SCOPED_TRACE(absl::StrCat(text, ", form ", form));
      const auto program = MakeGridProgram(HeldRequest(grid, training, microbatches));
      ASSERT_TRUE(program.ok()) << program.status();
      const MemoryTerms terms =
          MemoryOf(HeldModel(), training, ShapeOf(HeldModel(), training, grid, microbatch));
      const std::vector<HeldBytes> held = HeldByRank(*program, tiles);
      // The model has the fuller one of first and last stage, of which the last has logits.
      const HeldBytes& of = terms.logits > 0 ? held.back() : held.front();
      EXPECT_EQ(terms.gathered, of.gathers);
      EXPECT_EQ(terms.pending_scatters, of.scatters);
      compared += terms.gathered > 0 && terms.pending_scatters > 0 ? 1 : 0;
    }
  }
  EXPECT_EQ(compared, 6 * 12);
}

TEST(GridProgramMemoryTest, StagesOfOneRankHaveTransfersEach) {
  TileBytes tiles;
  const Grid grid = *ParseGrid("z=4,pipeline=2");
  for (const int64_t window : {1, 2, 3}) {
    Training training{.batch = kBatch, .sequence = 8, .keep_gathered = true};
    training.schedule = GridSchedule::kInterleaved;
    training.chunks = 2;
    training.pending_scatters = window;
    const auto program = MakeGridProgram(HeldRequest(grid, training, 4));
    ASSERT_TRUE(program.ok()) << program.status();
    const MemoryTerms terms =
        MemoryOf(HeldModel(), training, ShapeOf(HeldModel(), training, grid, 1));
    const std::vector<HeldBytes> held = HeldByRank(*program, tiles);
    const HeldBytes& of = terms.logits > 0 ? held.back() : held.front();
    EXPECT_EQ(terms.gathered, of.gathers) << window;
    EXPECT_EQ(terms.pending_scatters, of.scatters) << window;
  }
}

TEST(GridProgramMemoryTest, LayersWithGridsOfTheirOwnHaveTransfersForEachGrid) {
  for (const char* text : {"r=2,z=4+z=8@mlp", "r=2,z=4+c=2,r=2,z=2@1-2", "r=8+z=8@0-3.attention",
                           "z=8+r=2,z=4@logits"}) {
    const LayerGrids grids = *ParseLayerGrids(text);
    TileBytes tiles;
    for (int form = 0; form < 12; ++form) {
      Training training{.batch = kBatch, .sequence = 8, .keep_gathered = true};
      training.overlaps = OverlapForms()[form % 3];
      training.pending_scatters = 1 + form / 3;
      training.cached_layers = form % 4 < 2 ? 0 : 3;
      training.microbatch = kBatch / grids.grid.sample_groups() / (form % 2 + 1);
      SCOPED_TRACE(absl::StrCat(text, ", form ", form));
      const StepModel step =
          *StepModel::Create(HeldModel(), training, *FindDevicePreset("a100"),
                             *RatesOfNetwork(*ParseDevices(kEightHosts), Topology()));
      const auto price = PriceLayerGrids(step, grids);
      ASSERT_TRUE(price.ok()) << price.status();
      GridProgramRequest request{.model = HeldModel(),
                                 .training = training,
                                 .microbatches = form % 2 + 1,
                                 .device = *FindDevicePreset("a100")};
      request.stages.push_back({.grid = grids.grid,
                                .mesh = std::make_shared<const Mesh>(
                                    *MeshOfGrids(price->parts.grids, *ParseDevices(kEightHosts))),
                                .layers = kHeldLayers,
                                .others = grids.others});
      const auto program = MakeGridProgram(request);
      ASSERT_TRUE(program.ok()) << program.status();
      const HeldBytes of = HeldByRank(*program, tiles).front();
      EXPECT_EQ(price->memory.gathered, of.gathers);
      EXPECT_EQ(price->memory.pending_scatters, of.scatters);
    }
  }
}

}  // namespace
}  // namespace crossmesh
