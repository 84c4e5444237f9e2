#include "planner/parallelism/memory_model.h"

#include "planner/parallelism/exchange_bytes.h"

#include <algorithm>
#include <array>

namespace crossmesh {
namespace {

constexpr double kMaskBytes = 1;          // of dropout, an element
constexpr double kScoreElementBytes = 5;  // softmax input and output's mask, as Megatron counts

// Of a device, before anything is cut over data.
struct LocalParameters {
  double dense = 0;
  double experts = 0;
  double embedding = 0;  // of the first stage; of the last one the same where it is not tied
};

LocalParameters ParametersOf(const Transformer& model, const GridShape& shape) {
  LocalParameters local;
  const auto z = static_cast<double>(shape.grid.z());
  for (int i = 0; i < kBlockMatrices; ++i) {
    const bool of_experts = model.experts > 0 && i >= kFirstExpertMatrix;
    (of_experts ? local.experts : local.dense) +=
        static_cast<double>(shape.layers) * shape.matrices[i].elements() / z;
  }
  local.embedding = static_cast<double>(model.vocabulary * model.hidden) /
                    static_cast<double>(shape.grid.tensor_degree());
  return local;
}

void AddState(double parameters, double copies, const Training& training, MemoryTerms& terms) {
  terms.weights += training.element_bytes * parameters / (training.zero >= 3 ? copies : 1);
  terms.gradients += training.data_gradient_bytes * parameters / (training.zero >= 2 ? copies : 1);
  terms.optimizer += kOptimizerBytes * parameters / (training.zero >= 1 ? copies : 1);
}

double LargestMatrix(const GridShape& shape) {
  double largest = 0;
  for (const MatrixShape& matrix : shape.matrices) largest = std::max(largest, matrix.elements());
  return largest;
}

// Weights are cut by z, and over data by ZeRO's third stage.
bool GathersWeights(const Training& training, const Grid& grid) {
  return grid.z() > 1 || (training.zero >= 3 && grid.data() * grid.context() * grid.expert() > 1);
}

// Matrices that z cuts, of a stage.
struct CutMatrices {
  double elements = 0;  // of all of them, in one layer
  double layers = 0;    // that have them
  double cached = 0;    // of these, so many
};

// A program has memory for one gather of each matrix and way, and for so many scatters of it, each
// of the whole and the device's shard.
void AddTransfers(const CutMatrices& matrices, const Training& training, const GridShape& shape,
                  MemoryTerms& terms) {
  if (shape.grid.z() == 1 || matrices.layers == 0) return;
  const double shard = matrices.elements / static_cast<double>(shape.grid.z());
  const double bytes = (matrices.elements + shard) * training.element_bytes;
  terms.gathered += (matrices.cached < matrices.layers ? 2 : 1) * bytes;
  const double scatters = training.overlaps.weight_gradients
                              ? std::min(static_cast<double>(training.pending_scatters),
                                         matrices.layers * static_cast<double>(shape.microbatches))
                              : 1;
  terms.pending_scatters += scatters * bytes;
}

double LogitsElements(const Transformer& model, const GridShape& shape) {
  return static_cast<double>(model.vocabulary * model.hidden) /
         static_cast<double>(shape.grid.c() * shape.grid.r());
}

void AddLogitsTransfers(const Transformer& model, const Training& training, const GridShape& shape,
                        MemoryTerms& terms) {
  if (model.vocabulary == 0) return;
  AddTransfers({.elements = LogitsElements(model, shape),
                .layers = 1,
                .cached = training.cached_layers > 0 ? 1.0 : 0.0},
               training, shape, terms);
}

// Of blocks: stages that a rank has have transfers of their own.
void AddBlockTransfers(const Training& training, const GridShape& shape, MemoryTerms& terms) {
  if (!GathersWeights(training, shape.grid)) return;
  double block = 0;
  for (const MatrixShape& matrix : shape.matrices) block += matrix.elements();
  const int64_t cached = std::min(training.cached_layers, shape.layers);
  terms.cached = static_cast<double>(cached) * block * training.element_bytes;
  if (shape.grid.z() == 1) {
    // Of ZeRO there are no programs: one matrix, and the one ahead.
    terms.gathered =
        (training.overlaps.weight_gathers ? 2 : 1) * LargestMatrix(shape) * training.element_bytes;
    return;
  }
  const int64_t stages = shape.grid.pipeline() > 1 ? training.chunks : 1;
  const auto layers = static_cast<double>(shape.layers) / static_cast<double>(stages);
  const CutMatrices matrices{
      .elements = block,
      .layers = layers,
      .cached = std::min(static_cast<double>(training.cached_layers), layers)};
  for (int64_t stage = 0; stage < stages; ++stage) AddTransfers(matrices, training, shape, terms);
}

// The parts of a block's activations: on the side of the residual stream, cut by c, and inside
// attention and the inner width, cut by r; of either what products need as operands.
struct ActivationSides {
  double stream = 0;
  double stream_operands = 0;
  double inner = 0;
  double inner_operands = 0;
};

// Of attention, and of the MLP.
std::array<ActivationSides, 2> SidesOf(const Transformer& model, const Training& training) {
  const double element = training.element_bytes;
  const auto hidden = static_cast<double>(model.hidden);
  const auto query = static_cast<double>(model.query_width());
  const auto kv = static_cast<double>(model.kv_width());
  const double experts =
      model.experts > 0 ? static_cast<double>(model.experts_per_token) * training.expert_imbalance
                        : 1;
  const double inner = experts * static_cast<double>(model.feed_forward);
  const double stream = hidden * (element + kMaskBytes);
  return {{{.stream = stream,
            .stream_operands = hidden * element,
            .inner = element * (query + 2 * kv),
            .inner_operands = element * query},
           {.stream = stream,
            .stream_operands = hidden * element * experts,
            .inner = element * (model.gated ? 2 : 1) * inner,
            .inner_operands = element * inner}}};
}

// With the scores of attention, where these are kept.
double ActivationBytes(const Training& training, const GridShape& shape,
                       const ActivationSides& sides, double scores) {
  const auto c = static_cast<double>(shape.grid.c());
  const auto r = static_cast<double>(shape.grid.r());
  if (training.activations == ActivationForm::kReplicated) {
    return shape.rows * ((sides.stream + sides.stream_operands) / c +
                         (sides.inner + sides.inner_operands + scores) / r);
  }
  const double operands = training.keep_gathered
                              ? sides.stream_operands / c + sides.inner_operands / r
                              : (sides.stream_operands + sides.inner_operands) / (c * r);
  return shape.rows * ((sides.stream + sides.inner + scores) / (c * r) + operands);
}

double ScoreBytes(const Transformer& model, const Training& training) {
  if (training.flash_attention || training.recompute != Recompute::kNone) return 0;
  return kScoreElementBytes * static_cast<double>(model.heads * training.sequence);
}

// Logits of two bytes, and their gradient of four.
double LogitsBytes(const Transformer& model, const GridShape& shape) {
  return 6 * shape.rows * static_cast<double>(model.vocabulary) /
         static_cast<double>(shape.grid.r());
}

// The block's input is all that stays.
double BlockInputBytes(const Transformer& model, const Training& training, const GridShape& shape) {
  const double parts = training.activations == ActivationForm::kScattered
                           ? static_cast<double>(shape.grid.c() * shape.grid.r())
                           : static_cast<double>(shape.grid.c());
  return training.element_bytes * shape.rows * static_cast<double>(model.hidden) / parts;
}

}  // namespace

double MemoryTerms::total() const {
  double sum = 0;
  for (const MemoryTermField& field : kMemoryTermFields) sum += this->*field.term;
  return sum;
}

double OptimizedParameters(const Transformer& model, const Training& training,
                           const GridShape& shape) {
  const LocalParameters local = ParametersOf(model, shape);
  if (training.zero == 0) return local.dense + local.embedding + local.experts;
  const auto copies = static_cast<double>(shape.grid.data() * shape.grid.context());
  return (local.dense + local.embedding) / (copies * static_cast<double>(shape.grid.expert())) +
         local.experts / copies;
}

double BlockActivationBytes(const Transformer& model, const Training& training,
                            const GridShape& shape) {
  const auto [attention, mlp] = SidesOf(model, training);
  return ActivationBytes(training, shape, attention, ScoreBytes(model, training)) +
         ActivationBytes(training, shape, mlp, 0);
}

MemoryTerms MemoryOf(const Transformer& model, const Training& training, const GridShape& shape) {
  const Grid& grid = shape.grid;
  const auto copies = static_cast<double>(grid.data() * grid.context());
  const LocalParameters local = ParametersOf(model, shape);
  MemoryTerms first;
  AddState(local.dense + local.embedding, copies * static_cast<double>(grid.expert()), training,
           first);
  AddState(local.experts, copies, training, first);
  AddBlockTransfers(training, shape, first);
  const auto layers = static_cast<double>(shape.layers);
  const double block = BlockActivationBytes(model, training, shape);
  double of_microbatch = layers * block;
  if (training.recompute == Recompute::kFull) {
    of_microbatch = layers * BlockInputBytes(model, training, shape);
    first.live_block = block;
  }
  const double logits = LogitsBytes(model, shape);
  if (grid.pipeline() == 1) {
    if (!model.tied) AddState(local.embedding, copies, training, first);
    AddLogitsTransfers(model, training, shape, first);
    first.activations = of_microbatch;
    first.logits = logits;
    return first;
  }
  MemoryTerms last = first;
  first.activations = shape.in_flight * of_microbatch;
  AddLogitsTransfers(model, training, shape, last);
  last.activations = of_microbatch;
  last.logits = logits;
  return first.total() >= last.total() ? first : last;
}

MemoryTerms MemoryOf(const Transformer& model, const Training& training,
                     std::span<const PartsOfShape> parts) {
  MemoryTerms terms;
  const auto [attention, mlp] = SidesOf(model, training);
  for (const PartsOfShape& of : parts) {
    const std::array<MatrixShape, kBlockMatrices>& matrices = of.shape.matrices;
    const double of_attention = matrices[0].elements() + matrices[1].elements();
    const double of_mlp = matrices[2].elements() + matrices[3].elements();
    const auto z = static_cast<double>(of.shape.grid.z());
    const double blocks = (of.attention * of_attention + of.mlp * of_mlp) / z;
    const double embedding = static_cast<double>(model.vocabulary * model.hidden) /
                             static_cast<double>(of.shape.grid.tensor_degree());
    const double tables = of.has_logits ? embedding * (model.tied ? 1 : 2) : 0;
    AddState(blocks + tables, 1, training, terms);
    terms.activations +=
        of.attention * ActivationBytes(training, of.shape, attention, ScoreBytes(model, training)) +
        of.mlp * ActivationBytes(training, of.shape, mlp, 0);
    if (of.has_logits) {
      terms.logits = LogitsBytes(model, of.shape);
      AddLogitsTransfers(model, training, of.shape, terms);
    }
    if (of.shape.grid.z() == 1) continue;
    AddTransfers({.elements = of_attention, .layers = of.attention, .cached = of.cached_attention},
                 training, of.shape, terms);
    AddTransfers({.elements = of_mlp, .layers = of.mlp, .cached = of.cached_mlp}, training,
                 of.shape, terms);
    terms.cached +=
        (of.cached_attention * of_attention + of.cached_mlp * of_mlp) * training.element_bytes;
  }
  return terms;
}

}  // namespace crossmesh
