// Vectors of memory, pipelines, exchanges and published figures, by our own model where there is
// one.

#include "common/testing/status_matchers.h"
#include "planner/parallelism/cluster_tables.h"
#include "planner/parallelism/exchange_bytes.h"
#include "planner/parallelism/grid_ranking.h"
#include "planner/parallelism/pipeline_law.h"
#include "planner/parallelism/published/axonn_model.h"
#include "planner/parallelism/published/published_models.h"
#include "planner/parallelism/published/throughput.h"
#include "planner/parallelism/testing/parallelism_vectors.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

using Json = nlohmann::json;

TEST(StepVectorsTest, MemoryIsThatOfMegatronsPublishedBarsToTheLastDigit) {
  for (const ParallelismVector& v : ParallelismVectorsOf("memory_megatron")) {
    SCOPED_TRACE(v.id);
    Transformer model = PlainTransformer(v.inputs["model"], v.inputs["layers"], v.inputs["hidden"],
                                         v.inputs["heads"]);
    Training training{
        .batch = 64 * v.inputs["pipeline"].get<int64_t>() * v.inputs["micro_batch"].get<int64_t>(),
        .sequence = v.inputs["seq"],
        .microbatch = v.inputs["micro_batch"],
        .flash_attention = false,
        .chunks = v.inputs["interleave"]};
    if (training.chunks > 1) training.schedule = GridSchedule::kInterleaved;
    Grid grid;
    grid[GridAxis::kR] = v.inputs["tensor"];
    grid[GridAxis::kPipeline] = v.inputs["pipeline"];
    const auto memory = [&] {
      return MemoryOf(model, training, ShapeOf(model, training, grid, training.microbatch));
    };
    const MemoryTerms plain = memory();
    EXPECT_EQ(plain.state() / kGiB, v.expected["published_GiB"][0].get<double>());
    EXPECT_EQ(plain.activations / kGiB, v.expected["published_GiB"][1].get<double>());
    EXPECT_EQ(plain.state() / kGiB, v.expected["state_GiB"].get<double>());
    EXPECT_EQ(plain.activations / kGiB, v.expected["activations_no_recompute_GiB"].get<double>());
    training.activations = ActivationForm::kScattered;
    training.recompute = Recompute::kSelective;
    EXPECT_EQ(memory().activations / kGiB, v.expected["published_GiB"][2].get<double>());
    EXPECT_EQ(memory().activations / kGiB,
              v.expected["activations_seqpar_selective_GiB"].get<double>());
  }
}

TEST(StepVectorsTest, MemoryOfGridsHasItsTerms) {
  for (const ParallelismVector& v : ParallelismVectorsOf("memory_axonn")) {
    SCOPED_TRACE(v.id);
    const Grid grid = GridOfJson(v.inputs["grid"]);
    const int64_t hidden = v.inputs["hidden"];
    const Transformer model = PlainTransformer("", v.inputs["layers"], hidden, hidden / 128);
    EXPECT_EQ(Parameters(model), v.inputs["parameters"]);
    const bool full = v.inputs["recompute"] == "full";
    const Training training{.batch = v.inputs["step_tokens"].get<int64_t>() / 2048,
                            .sequence = 2048,
                            .recompute = full ? Recompute::kFull : Recompute::kNone};
    const GridShape shape = ShapeOf(model, training, grid, training.batch / grid.sample_groups());
    const MemoryTerms terms = MemoryOf(model, training, shape);
    EXPECT_TRUE(IsNear(terms.state(), v.expected["state_bytes"], v.relative_tolerance));
    const auto layers = LayersOfBlock(1, static_cast<double>(hidden), MlpOutShape::kTrue);
    EXPECT_TRUE(IsNear(GatherBufferBytes(layers[2], grid),
                       v.expected["gathered_weight_bytes_two_buffers"], v.relative_tolerance));
    EXPECT_TRUE(IsNear(terms.activations + terms.live_block, v.expected["activation_bytes"],
                       v.relative_tolerance));
    EXPECT_TRUE(IsNear(BlockActivationBytes(model, training, shape),
                       v.expected["per_layer_live_bytes"], v.relative_tolerance));
  }
}

TEST(StepVectorsTest, PipelinesTakeWhatTheirClosedFormsSay) {
  for (const ParallelismVector& v : ParallelismVectorsOf("pipeline")) {
    SCOPED_TRACE(v.id);
    const int64_t microbatches = v.inputs["micro_batches"];
    if (v.inputs.contains("stage_s")) {
      EXPECT_TRUE(IsNear(
          UnevenPipelineSeconds(v.inputs["stage_s"].get<std::vector<double>>(), microbatches),
          v.expected["step_s"], v.relative_tolerance));
      continue;
    }
    const int64_t chunks = v.inputs["interleave"];
    const double backward = v.inputs["backward_s"];
    EqualPipeline shape{
        .schedule = chunks > 1 ? GridSchedule::kInterleaved : GridSchedule::kOneForwardOneBackward,
        .ranks = v.inputs["stages"],
        .microbatches = microbatches,
        .chunks = chunks,
        .forward_seconds = v.inputs["forward_s"],
        .input_gradient_seconds = backward / 2,
        .weight_gradient_seconds = backward / 2};
    const double step = PipelineSeconds(shape);
    const double ideal = static_cast<double>(microbatches) * shape.seconds();
    EXPECT_TRUE(IsNear(step, v.expected["step_s"], v.relative_tolerance));
    EXPECT_TRUE(IsNear(step / ideal - 1, v.expected["bubble_over_ideal"], 1e-9));
    EXPECT_EQ(std::ceil(InFlight(shape.schedule, shape.ranks, microbatches, chunks)),
              v.expected["in_flight_first_stage"].get<double>());
    shape.schedule = GridSchedule::kZbH1;
    EXPECT_TRUE(
        IsNear(PipelineSeconds(shape), v.expected["zero_bubble_h1_step_s"], v.relative_tolerance));
  }
}

TEST(StepVectorsTest, ExchangesSendTheirBytes) {
  for (const ParallelismVector& v : ParallelismVectorsOf("context_parallel")) {
    SCOPED_TRACE(v.id);
    const int64_t parts = v.inputs["cp"];
    const double tokens = v.inputs["seq"].get<double>() * v.inputs["batch"].get<double>();
    const PassBytes bytes = BytesOf(
        ContextExchange{.parts = parts,
                        .tokens = tokens / static_cast<double>(parts),
                        .q_width = v.inputs["q_width"],
                        .kv_width = v.inputs["kv_width"],
                        .method = *ParseContextMethod(v.inputs["method"].get<std::string>()),
                        .element_bytes = v.inputs["element_bytes"]});
    EXPECT_TRUE(IsNear(bytes.forward, v.expected["forward_bytes"], v.relative_tolerance));
    EXPECT_TRUE(IsNear(bytes.backward, v.expected["backward_bytes"], v.relative_tolerance));
  }
  for (const ParallelismVector& v : ParallelismVectorsOf("expert_parallel")) {
    SCOPED_TRACE(v.id);
    const PassBytes bytes = BytesOf(ExpertExchange{.parts = v.inputs["ep"],
                                                   .tokens = v.inputs["local_tokens"],
                                                   .experts_per_token = v.inputs["topk"],
                                                   .hidden = v.inputs["hidden"],
                                                   .imbalance = v.inputs["imbalance"],
                                                   .element_bytes = v.inputs["element_bytes"]});
    EXPECT_TRUE(IsNear(bytes.forward, v.expected["forward_bytes"], v.relative_tolerance));
    EXPECT_TRUE(IsNear(bytes.backward, v.expected["backward_bytes"], v.relative_tolerance));
  }
  for (const ParallelismVector& v : ParallelismVectorsOf("zero_stages")) {
    for (int stage = 0; stage <= 3; ++stage) {
      const ZeroShape shape{.parameters = v.inputs["parameters"],
                            .data = v.inputs["data"],
                            .stage = stage,
                            .weight_bytes = v.inputs["weight_bytes"],
                            .gradient_bytes = v.inputs["grad_bytes"],
                            .microbatches = v.inputs["micro_batches"]};
      const std::string key = std::to_string(stage);
      EXPECT_TRUE(IsNear(ZeroStateBytes(shape), v.expected["memory_bytes_per_rank"][key], 1e-9));
      EXPECT_TRUE(IsNear(ZeroWireBytes(shape), v.expected["wire_bytes_per_step"][key], 1e-9));
    }
  }
}

TEST(StepVectorsTest, NcclsRingTakesWhatItsTuningModelSays) {
  for (const ParallelismVector& v : ParallelismVectorsOf("nccl_ring_time")) {
    const NcclRing ring{
        .ranks = v.inputs["ranks"],
        .nodes = v.inputs["nodes"],
        .base_seconds = v.inputs["base_us"].get<double>() * 1e-6,
        .hop_seconds = v.inputs["nvlink_hop_us"].get<double>() * 1e-6,
        .network_hop_seconds = v.inputs["net_hop_us"].get<double>() * 1e-6,
        .network_overhead_seconds = v.inputs["net_overhead_us"].get<double>() * 1e-6,
        .channels = v.inputs["channels"],
        .channel_bytes_per_second = v.inputs["channel_bandwidth_GBps"].get<double>() * kGB,
        .plateau_factor = v.inputs["plateau_factor"]};
    EXPECT_TRUE(IsNear(ring.LatencySeconds() * 1e6, v.expected["latency_us"], 1e-9));
    EXPECT_TRUE(
        IsNear(ring.AlgorithmBytesPerSecond() / kGB, v.expected["algorithm_bandwidth_GBps"], 1e-9));
    EXPECT_TRUE(IsNear(ring.Seconds(v.inputs["bytes"]) * 1e6, v.expected["time_us"], 1e-9));
  }
}

TEST(StepVectorsTest, HeadlinesAddUp) {
  for (const ParallelismVector& v : ParallelismVectorsOf("percent_of_peak")) {
    for (size_t i = 0; i < v.inputs["rows"].size(); ++i) {
      const Json& row = v.inputs["rows"][i];
      EXPECT_TRUE(IsNear(PercentOfPeak(row["petaflops"].get<double>() * 1e15, row["ranks"],
                                       row["peak_tflops"].get<double>() * 1e12),
                         v.expected["percent"][i], v.relative_tolerance));
    }
  }
  for (const ParallelismVector& v : ParallelismVectorsOf("weak_scaling")) {
    const double base = v.inputs["petaflops_32768"].get<double>() /
                        (64 * v.inputs["efficiency"]["32768"].get<double>());
    EXPECT_TRUE(IsNear(base, v.expected["petaflops_512"], v.relative_tolerance));
    for (const auto& [key, nodes] : {std::pair("8192", 16), std::pair("16384", 32)}) {
      EXPECT_TRUE(IsNear(base * nodes * v.inputs["efficiency"][key].get<double>(),
                         v.expected["petaflops_" + std::string(key)], v.relative_tolerance));
    }
  }
  for (const ParallelismVector& v : ParallelismVectorsOf("step_flops")) {
    Transformer model = FindPublishedModel(v.inputs["model"].get<std::string>())->shape;
    model.vocabulary = v.inputs["vocabulary"];
    const double flops = StepFlops(model, v.inputs["batch_sequences"], v.inputs["sequence_length"]);
    EXPECT_TRUE(IsNear(flops, v.expected["flops"], v.relative_tolerance));
    EXPECT_TRUE(IsNear(flops / 182e15, v.expected["seconds_at_182_petaflops"], 1e-9));
  }
}

// What our own model says of Megatron's runs: A100 of 80 GB, eight to a node with NVLink.
double PredictedSeconds(const Json& row, int64_t tensor, const Training& changes) {
  const PublishedModel model = *FindPublishedModel(row["model"].get<std::string>());
  Training training = changes;
  training.batch = row["batch"];
  training.sequence = 2048;
  training.microbatch = row["micro"];
  training.chunks = row["interleave"];
  training.flash_attention = false;
  if (training.chunks > 1) training.schedule = GridSchedule::kInterleaved;
  Grid grid;
  grid[GridAxis::kR] = tensor;
  grid[GridAxis::kPipeline] = row["pipeline"];
  // What is reached of NVLink's 300 GB/s, and of eight NICs of 25.
  constexpr PublishedCluster kSelene{
      .name = "", .devices_per_node = 8, .intra = 220, .inter = 160, .rows = {}};
  const auto rates = RatesOfCluster(kSelene, grid.devices());
  const auto step = StepModel::Create(model.shape, training, *FindDevicePreset("a100"), *rates);
  const auto priced = PriceGrid(*step, grid, {}, /*over_memory=*/true);
  EXPECT_TRUE(priced.ok()) << priced.status();
  return priced.ok() ? priced->seconds : 0;
}

// How far times are from others, in parts of these.
class Errors {
 public:
  void Add(double seconds, double expected) {
    const double error = std::abs(seconds / expected - 1);
    sum_ += error;
    worst_ = std::max(worst_, error);
    ++count_;
  }
  int count() const { return count_; }
  double mean() const { return sum_ / count_; }
  double worst() const { return worst_; }

 private:
  double sum_ = 0;
  double worst_ = 0;
  int count_ = 0;
};

// Measured, by Calculon's own validation, and ours.
struct StepTimes {
  std::string run;
  double measured = 0;
  double calculon = 0;
  double ours = 0;
};

std::vector<StepTimes> MegatronsSteps() {
  const struct {
    const char* measured;
    const char* calculon;
    Training training;
  } runs[] = {{"full_recompute_s", "calculon_full_s", {.recompute = Recompute::kFull}},
              {"selective_plus_seqpar_s",
               "calculon_selective_s",
               {.activations = ActivationForm::kScattered, .recompute = Recompute::kSelective}}};
  std::vector<StepTimes> steps;
  for (const ParallelismVector& v : ParallelismVectorsOf("published_step_time")) {
    for (size_t i = 0; i < v.inputs["rows"].size(); ++i) {
      const Json& row = v.inputs["rows"][i];
      for (const auto& [measured, calculon, training] : runs) {
        steps.push_back({.run = row["model"].get<std::string>() + " " + measured,
                         .measured = v.expected[measured][i],
                         .calculon = v.expected[calculon][i],
                         .ours = PredictedSeconds(row, v.inputs["tensor"], training)});
      }
    }
  }
  return steps;
}

TEST(StepVectorsTest, MegatronsPublishedStepTimesAreMetWithinFourPercentInTheMeanAndNineAtWorst) {
  Errors errors;
  for (const StepTimes& step : MegatronsSteps()) {
    RecordProperty(step.run, std::to_string(step.ours));
    errors.Add(step.ours, step.measured);
  }
  ASSERT_EQ(errors.count(), 8);
  EXPECT_LE(errors.mean(), 0.04);
  EXPECT_LE(errors.worst(), 0.09);
}

// The marks above are Calculon's, to a rounding. Where ours is farther from its times than these
// marks, what was measured lies between the two: at 1T.
TEST(StepVectorsTest, CalculonsTimesOfTheSameStepsAreOnTheOtherSideOfWhatWasMeasured) {
  Errors of_calculon;
  Errors between;
  for (const StepTimes& step : MegatronsSteps()) {
    of_calculon.Add(step.calculon, step.measured);
    between.Add(step.ours, step.calculon);
    if (std::abs(step.ours / step.calculon - 1) <= 0.09) continue;
    EXPECT_GT(step.ours, step.measured) << step.run;
    EXPECT_LT(step.calculon, step.measured) << step.run;
  }
  ASSERT_EQ(of_calculon.count(), 8);
  EXPECT_NEAR(of_calculon.mean(), 0.0365, 1e-4);
  EXPECT_NEAR(of_calculon.worst(), 0.0888, 1e-4);
  EXPECT_LE(between.mean(), 0.0525);
  EXPECT_LE(between.worst(), 0.1225);
}

}  // namespace
}  // namespace crossmesh
