#include "planner/parallelism/collective_walk.h"

#include "planner/parallelism/cluster_tables.h"
#include "planner/parallelism/exchange_bytes.h"
#include "planner/parallelism/gather_ahead.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

// Flat: every position has the same rate.
StepModel StepOnFlat(const Transformer& model, const Training& training, int64_t devices,
                     double bytes_per_second = 1e9) {
  const PublishedCluster flat{
      .name = "", .devices_per_node = 1 << 20, .unit = 1, .intra = bytes_per_second, .rows = {}};
  return *StepModel::Create(model, training, *FindDevicePreset("a100"),
                            *RatesOfCluster(flat, devices));
}

PerAxis<double> BytesOf(const StepModel& step, const Grid& grid, int64_t microbatch = 1) {
  return step.Price(ShapeOf(step.model(), step.training(), grid, microbatch)).wire_bytes;
}

Transformer FourLayers() { return PlainTransformer("", 4, 1024, 16); }

// 2 m [(c - 1) n + (r - 1) k] / (c r z), and c and r swapped for transposed layers: both passes.
double SumsBytes(const Transformer& model, const Grid& grid, double rows) {
  double elements = 0;
  for (const BlockMatrix& matrix : MatricesOf(model)) {
    const auto summed = static_cast<double>(grid[matrix.transposed ? GridAxis::kR : GridAxis::kC]);
    const auto other = static_cast<double>(grid[matrix.transposed ? GridAxis::kC : GridAxis::kR]);
    elements +=
        (summed - 1) * static_cast<double>(matrix.n) + (other - 1) * static_cast<double>(matrix.k);
  }
  return 2 * 2 * rows * elements / static_cast<double>(grid.c() * grid.r());
}

TEST(CollectiveWalkTest, BothFormsOfActivationsSendTheSame) {
  for (const char* text : {"r=4", "c=4", "c=2,r=4", "c=4,r=2,z=2", "c=2,r=2,z=2,data=2"}) {
    const Grid grid = *ParseGrid(text);
    Training training{.batch = 16, .sequence = 256};
    training.microbatch = training.batch / grid.sample_groups();
    const auto rows = static_cast<double>(training.microbatch * training.sequence);
    const double expected = 4 * SumsBytes(FourLayers(), grid, rows);
    const auto sent = [&] {
      const PerAxis<double> bytes =
          BytesOf(StepOnFlat(FourLayers(), training, grid.devices()), grid, training.microbatch);
      return bytes[GridAxis::kC] + bytes[GridAxis::kR];
    };
    EXPECT_NEAR(sent(), expected, 1e-9 * expected) << text;
    training.activations = ActivationForm::kScattered;
    training.keep_gathered = true;
    EXPECT_NEAR(sent(), expected, 1e-9 * expected) << text;
    // Gathered again, the inputs come once more.
    training.keep_gathered = false;
    EXPECT_GT(sent(), expected) << text;
  }
}

TEST(CollectiveWalkTest, FullRecomputationSendsForwardAgain) {
  const Grid grid = *ParseGrid("c=2,r=4,z=2");
  Training training{.batch = 16, .sequence = 256, .recompute = Recompute::kFull};
  const auto bytes = [&] { return BytesOf(StepOnFlat(FourLayers(), training, 16), grid, 8); };
  const double once = bytes()[GridAxis::kZ];
  const PerAxis<double> all = bytes();
  training.recompute = Recompute::kNone;
  // The gather of the recomputation serves the backward pass.
  EXPECT_EQ(bytes()[GridAxis::kZ], once);
  EXPECT_GT(all[GridAxis::kC], bytes()[GridAxis::kC]);
  training.cached_layers = 4;
  EXPECT_NEAR(bytes()[GridAxis::kZ], once * 2 / 3, 1e-6 * once);
  training.cached_layers = 1;
  EXPECT_NEAR(bytes()[GridAxis::kZ], once * (3 - 0.25) / 3, 1e-6 * once);
  training.recompute = Recompute::kFull;
  EXPECT_NEAR(bytes()[GridAxis::kZ], once * (3 - 0.25) / 3, 1e-6 * once);
}

TEST(CollectiveWalkTest, AMicrobatchGathersAndScattersWeightsEachTime) {
  const Grid grid = *ParseGrid("z=2");
  const Training training{.batch = 16, .sequence = 256};
  const StepModel step = StepOnFlat(FourLayers(), training, 2);
  const double whole = BytesOf(step, grid, 8)[GridAxis::kZ];
  EXPECT_EQ(whole, 4 * 3 * 12.0 * 1024 * 1024 * 2 / 2);
  EXPECT_EQ(BytesOf(step, grid, 2)[GridAxis::kZ], 4 * whole);
}

TEST(CollectiveWalkTest, ContextSendsWhatItsMethodSays) {
  Transformer model = FourLayers();
  model.kv_heads = 4;
  for (const ContextMethod method :
       {ContextMethod::kRing, ContextMethod::kAllGather, ContextMethod::kUlysses}) {
    const Training training{.batch = 4, .sequence = 256, .context = method};
    const Grid grid = *ParseGrid("r=2,context=2");
    const StepModel step = StepOnFlat(model, training, 4);
    const ContextExchange exchange{.parts = 2,
                                   .tokens = 4 * 256 / 2,
                                   .q_width = 1024 / 2,
                                   .kv_width = 256 / 2,
                                   .method = method};
    const PassBytes bytes = BytesOf(exchange);
    // And the sum of gradients over its copies.
    const double gradients =
        4 * static_cast<double>(BlockParameters(model)) / 2 * training.data_gradient_bytes;
    EXPECT_NEAR(BytesOf(step, grid, 4)[GridAxis::kContext],
                4 * (bytes.forward + bytes.backward) + gradients, 1e-3)
        << ContextMethodName(method);
  }
}

TEST(CollectiveWalkTest, ExpertsSendTokensThereAndBack) {
  Transformer model = FourLayers();
  model.experts = 8;
  model.experts_per_token = 2;
  const Training training{.batch = 8, .sequence = 256, .expert_imbalance = 1.25};
  const Grid grid = *ParseGrid("expert=4");
  const PassBytes bytes = BytesOf(ExpertExchange{
      .parts = 4, .tokens = 2 * 256, .experts_per_token = 2, .hidden = 1024, .imbalance = 1.25});
  // What is dense is summed over the axis, experts are not.
  const double dense = 4 * 4.0 * 1024 * 1024;
  EXPECT_NEAR(BytesOf(StepOnFlat(model, training, 4), grid, 2)[GridAxis::kExpert],
              4 * (bytes.forward + bytes.backward) + 2 * 3.0 / 4 * dense * 4, 1e-3);
}

TEST(CollectiveWalkTest, ZeroSendsWhatItsStagesSay) {
  for (int stage = 0; stage <= 3; ++stage) {
    Training training{.batch = 8, .sequence = 256, .zero = stage};
    const ZeroShape shape{.parameters = static_cast<double>(Parameters(FourLayers())),
                          .data = 4,
                          .stage = stage,
                          .microbatches = 2};
    EXPECT_NEAR(
        BytesOf(StepOnFlat(FourLayers(), training, 4), *ParseGrid("data=4"), 1)[GridAxis::kData],
        ZeroWireBytes(shape), 1e-3)
        << stage;
  }
}

// The uses of one object and pass.
std::vector<CollectiveUse> Named(const std::vector<CollectiveUse>& uses, absl::string_view pass,
                                 absl::string_view what) {
  std::vector<CollectiveUse> found;
  for (const CollectiveUse& use : uses) {
    if (use.pass == pass && use.what == what) found.push_back(use);
  }
  return found;
}

TEST(CollectiveWalkTest, EachOverlapHidesItsCollectives) {
  const Grid grid = *ParseGrid("c=2,r=2,z=2");
  const struct {
    Overlaps overlaps;
    const char* pass;
    const char* what;
  } switches[] = {{{true, false, false, false, false}, "backward", "input gradient"},
                  {{false, true, false, false, false}, "backward", "weight gradient"},
                  {{false, false, true, false, false}, "forward", "weights"},
                  {{false, false, false, true, false}, "backward", "weights"},
                  {{false, false, false, false, true}, "forward", "output"}};
  for (const auto& [overlaps, pass, what] : switches) {
    Training training{.batch = 16, .sequence = 256, .overlaps = overlaps};
    const StepModel step = StepOnFlat(FourLayers(), training, 8, 50e9);
    const std::vector<CollectiveUse> uses =
        step.Collectives(ShapeOf(step.model(), training, grid, 8));
    double elsewhere = 0;
    for (const CollectiveUse& use : uses) {
      if (use.pass != pass || use.what != what) elsewhere += use.hidden_seconds;
      EXPECT_LE(use.hidden_seconds, use.seconds);
    }
    EXPECT_EQ(elsewhere, 0) << what;
    const std::vector<CollectiveUse> hidden = Named(uses, pass, what);
    EXPECT_EQ(hidden.size(), 4) << what;
    for (const CollectiveUse& use : hidden) {
      EXPECT_GT(use.hidden_seconds, 0) << what;
      EXPECT_FALSE(use.hidden_by.empty());
    }
  }
}

TEST(CollectiveWalkTest, WhatHidesIsNoLongerThanWhatRunsBesideIt) {
  // So slow that nothing hides whole.
  const Grid grid = *ParseGrid("c=2,r=2,z=2");
  Training training{.batch = 16, .sequence = 256};
  const StepModel step = StepOnFlat(FourLayers(), training, 8, 1e6);
  const GridShape shape = ShapeOf(step.model(), training, grid, 8);
  const BlockWork work = WorkOfBlock(step.model(), training, step.device(), shape);
  const std::vector<CollectiveUse> uses = step.Collectives(shape);
  const std::vector<CollectiveUse> gradients = Named(uses, "backward", "input gradient");
  ASSERT_EQ(gradients.size(), 4);
  // In the order of the backward pass.
  for (int i = 0; i < 4; ++i)
    EXPECT_EQ(gradients[i].hidden_seconds, work.product[3 - i].weight_gradient);
  // Behind a product there is only what was not gathered while it waited for its own weights.
  const std::vector<CollectiveUse> gathers = Named(uses, "forward", "weights");
  for (int i = 0; i < 4; ++i) {
    EXPECT_LE(gathers[i].hidden_seconds, work.ForwardSegment((i + 3) % 4));
  }
  EXPECT_EQ(gathers[1].hidden_seconds, 0);
  EXPECT_EQ(gathers[2].hidden_seconds, work.ForwardSegment(1));
  double scattered = 0;
  for (const CollectiveUse& use : Named(uses, "backward", "weight gradient")) {
    scattered += use.hidden_seconds;
  }
  EXPECT_NEAR(scattered, work.backward() - work.weight_gradients(), 1e-9);
}

// By the plainest simulation: two gathers share a port, and move in steps of no time.
TEST(CollectiveWalkTest, GathersAheadShareThePortWhileAProductWaits) {
  const uint64_t seed = std::random_device()();
  std::mt19937_64 random(seed);
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  for (int attempt = 0; attempt < 100; ++attempt) {
    constexpr double kTick = 1e-4;
    GatherAhead gathers;
    double now = 0;  // of products, and waits for gathers
    double products = 0;
    double own = 0;   // left of the gather that the product needs,
    double next = 0;  // and of the one after it
    double hidden = 0;
    double behind = 0;
    double all = 0;
    own = static_cast<double>(random() % 100) / 100;
    all += own;
    hidden += gathers.Hidden(own, 0);
    for (int product = 0; product < 8; ++product) {
      next = static_cast<double>(random() % 100) / 100;
      all += next;
      behind = static_cast<double>(random() % 100) / 100;
      hidden += gathers.Hidden(next, behind);
      while (own > 0) {
        const double share = next > 0 ? kTick / 2 : kTick;
        own -= share;
        if (next > 0) next -= share;
        now += kTick;
      }
      next = std::max(0.0, next - behind);
      now += behind;
      products += behind;
      own = next;
    }
    // What is left is waited for at last.
    EXPECT_NEAR(now + own - products, all - hidden, 0.01);
  }
}

TEST(CollectiveWalkTest, NoTimeHidesTwoCollectives) {
  for (const char* text : {"c=2,r=2,z=2", "r=2,z=2,context=2", "z=4,context=2", "c=2,r=2,data=2",
                           "z=2,data=4", "context=4,data=2", "c=2,r=2,z=2,context=2"}) {
    for (const Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
      for (const ActivationForm form : {ActivationForm::kReplicated, ActivationForm::kScattered}) {
        for (const int zero : {0, 3}) {
          const Grid grid = *ParseGrid(text);
          const Training training{.batch = 32,
                                  .sequence = 256,
                                  .activations = form,
                                  .recompute = recompute,
                                  .zero = zero,
                                  .overlaps = {true, true, true, true, true}};
          // So slow that all time there is hides something.
          const StepModel step = StepOnFlat(FourLayers(), training, grid.devices(), 1e6);
          const GridShape shape = ShapeOf(step.model(), training, grid, 4);
          const BlockWork work = WorkOfBlock(step.model(), training, step.device(), shape);
          double forward = 0;
          double backward = 0;
          for (const CollectiveUse& use : step.Collectives(shape)) {
            const double blocks = static_cast<double>(shape.layers * shape.microbatches);
            (use.pass == "forward" ? forward : backward) += use.hidden_seconds * use.count / blocks;
          }
          const double again = recompute == Recompute::kFull ? work.forward() : 0;
          EXPECT_LE(forward, work.forward() * (1 + 1e-9)) << text << " zero " << zero;
          EXPECT_LE(backward, (work.backward() + again) * (1 + 1e-9)) << text << " zero " << zero;
          // Scatters take whatever the others leave.
          if (grid.z() > 1) EXPECT_NEAR(backward / (work.backward() + again), 1, 1e-9) << text;
        }
      }
    }
  }
}

std::vector<double> MessagesOfVectors(const StepModel& step, const GridShape& shape,
                                      absl::string_view what) {
  std::vector<double> bytes;
  for (const CollectiveUse& use : step.Collectives(shape)) {
    if (use.object == "vectors" && use.what == what) bytes.push_back(use.message_bytes);
  }
  return bytes;
}

// Those that c cuts over z and then over data, and likewise those that r cuts.
TEST(CollectiveWalkTest, VectorsAreSummedAxisAfterAxisOfWhatIsLeft) {
  const Training training{.batch = 16, .sequence = 256};
  Transformer model = FourLayers();
  model.vocabulary = 4096;
  const StepModel step = StepOnFlat(model, training, 8);
  const std::vector<double> bytes = MessagesOfVectors(
      step, ShapeOf(model, training, *ParseGrid("r=2,z=2,data=2"), 4), "gradients");
  ASSERT_EQ(bytes.size(), 4);
  const BlockVectors of_block = VectorsOf(model);
  EXPECT_EQ(bytes[0], 4 * (static_cast<double>(4 * of_block.of_c) + (2 + 4096 + 256) * 1024.0));
  EXPECT_EQ(bytes[1], bytes[0] / 2);
  EXPECT_EQ(bytes[2], 4 * static_cast<double>(4 * of_block.of_r) / 2);
  EXPECT_EQ(bytes[3], bytes[2] / 2);
}

// A piece of z goes from the diagonal along the face, and z gathers them.
TEST(CollectiveWalkTest, VectorsOfTheDiagonalGoByPiecesAndAreGathered) {
  const Training training{.batch = 16,
                          .sequence = 256,
                          .activations = ActivationForm::kScattered,
                          .vectors = VectorForm::kDiagonal};
  const StepModel step = StepOnFlat(FourLayers(), training, 16);
  const std::vector<double> bytes = MessagesOfVectors(
      step, ShapeOf(step.model(), training, *ParseGrid("c=2,r=2,z=4"), 2), "parameters");
  ASSERT_EQ(bytes.size(), 4);
  EXPECT_EQ(bytes[0], bytes[1] / 4);
  EXPECT_EQ(bytes[2], bytes[3] / 4);
}

// As the first block of a forward pass, whatever was gathered before it.
TEST(CollectiveWalkTest, ABlockThatIsComputedAgainGathersAheadInsideItselfAlone) {
  const Grid grid = *ParseGrid("z=4");
  const Training training{.batch = 16, .sequence = 256, .recompute = Recompute::kFull};
  for (const double bytes_per_second : {1e9, 5e9, 20e9, 100e9}) {
    const auto gathers = [&](const Transformer& model, const char* pass) {
      const StepModel step = StepOnFlat(model, training, 4, bytes_per_second);
      std::vector<double> hidden;
      for (const CollectiveUse& use :
           Named(step.Collectives(ShapeOf(model, training, grid, 4)), pass, "weights")) {
        hidden.push_back(use.hidden_seconds);
      }
      return hidden;
    };
    EXPECT_EQ(gathers(FourLayers(), "recompute"),
              gathers(PlainTransformer("", 1, 1024, 16), "forward"))
        << bytes_per_second;
  }
}

// The first half's sum runs beside the second half's product, however fast; the second one shows.
TEST(CollectiveWalkTest, OfABatchInHalvesHalfOfASumShows) {
  const Grid grid = *ParseGrid("c=2,r=2");
  const Training training{.batch = 16, .sequence = 256, .overlaps = {.split_batch = true}};
  const StepModel step = StepOnFlat(FourLayers(), training, 4, 1e13);
  const std::vector<CollectiveUse> sums =
      Named(step.Collectives(ShapeOf(step.model(), training, grid, 8)), "forward", "output");
  ASSERT_EQ(sums.size(), 4);
  for (const CollectiveUse& sum : sums) EXPECT_EQ(sum.hidden_seconds, sum.seconds / 2);
}

TEST(CollectiveWalkTest, TheLastScatterAlwaysShows) {
  const Grid grid = *ParseGrid("z=2");
  const Training training{.batch = 2, .sequence = 256};
  // So fast that all else hides.
  const StepModel step = StepOnFlat(FourLayers(), training, 2, 1e12);
  const std::vector<CollectiveUse> scatters = Named(
      step.Collectives(ShapeOf(step.model(), training, grid, 1)), "backward", "weight gradient");
  double exposed = 0;
  for (const CollectiveUse& use : scatters)
    exposed += use.count * (use.seconds - use.hidden_seconds);
  EXPECT_NEAR(exposed, 3 * 1024 * 1024.0 * 2 / 2 / 1e12, 1e-12);
}

}  // namespace
}  // namespace crossmesh
