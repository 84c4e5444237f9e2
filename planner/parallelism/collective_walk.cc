#include "planner/parallelism/collective_walk.h"

#include "planner/parallelism/gather_ahead.h"

#include <algorithm>

namespace crossmesh {
namespace {

constexpr absl::string_view kForward = "forward";
constexpr absl::string_view kRecompute = "recompute";
constexpr absl::string_view kBackward = "backward";
constexpr absl::string_view kStepEnd = "step end";

// By then what is left of a layer's gathers for the next one hardly changes.
constexpr int kLayersUntilSteady = 4;

constexpr std::array<GridAxis, 3> kCopyAxes = {GridAxis::kContext, GridAxis::kExpert,
                                               GridAxis::kData};

}  // namespace

CollectiveWalk::CollectiveWalk(const StepModel& step, const GridShape& shape, const BlockWork& work)
    : step_(step),
      training_(step.training()),
      shape_(shape),
      work_(work),
      matrices_(shape.matrices),
      blocks_(step.blocks()) {
  const PerAxis<int64_t> inner = InnerSizes(shape.grid, training_.order);
  for (const GridAxis axis : kGridAxes) {
    rates_[axis] = &step.rates().At(inner[axis], shape.grid[axis]);
  }
}

double CollectiveWalk::Blocks() const {
  return static_cast<double>(shape_.layers * shape_.microbatches);
}

double CollectiveWalk::UncachedShare() const {
  return static_cast<double>(shape_.layers - std::min(training_.cached_layers, shape_.layers)) /
         static_cast<double>(shape_.layers);
}

bool CollectiveWalk::HasRing() const {
  return shape_.grid.context() > 1 && training_.context == ContextMethod::kRing;
}

double CollectiveWalk::FreeForward(int matrix) const {
  return work_.ForwardSegment(matrix) -
         (training_.overlaps.split_batch ? work_.product[matrix].forward / 2 : 0) -
         (matrix == 0 && HasRing() ? work_.attention : 0);
}

double CollectiveWalk::FreeBackward(int matrix) const {
  const bool gathers_input =
      training_.activations == ActivationForm::kScattered && !training_.keep_gathered;
  const LayerProducts& product = work_.product[matrix];
  double taken = 0;  // by sums and gathers of the same matrix
  if (training_.overlaps.input_gradients) {
    taken = product.weight_gradient + (gathers_input ? product.input_gradient : 0);
  }
  return work_.BackwardSegment(matrix) - taken -
         (matrix == 0 && HasRing() ? 2 * work_.attention : 0);
}

void CollectiveWalk::Tell(CollectiveUse& use, const Hiding& hiding, Sink sink) const {
  if (shape_.grid[use.axis] <= 1 || use.message_bytes <= 0 || use.count <= 0) return;
  use.seconds = rates_[use.axis]->Seconds(use.op, use.message_bytes);
  use.hidden_seconds = std::min(use.seconds, hiding.seconds);
  use.hidden_by = use.hidden_seconds > 0 ? hiding.by : absl::string_view();
  sink(use);
}

CollectiveUse CollectiveWalk::WeightGather(int matrix) const {
  return {.object = blocks_[matrix].name,
          .what = "weights",
          .op = CollectiveOp::kAllGather,
          .axis = GridAxis::kZ,
          .message_bytes = matrices_[matrix].elements() * training_.element_bytes,
          .count = Blocks()};
}

// Scattered activations: rows of the input are brought together over the axis that does not cut its
// columns.
void CollectiveWalk::GatherInput(int matrix, absl::string_view pass, const Hiding& hiding,
                                 Sink sink) const {
  const MatrixShape& shape = matrices_[matrix];
  if (shape_.grid[shape.gradient] == 1) return;
  Tell({.pass = pass,
        .object = blocks_[matrix].name,
        .what = "input",
        .op = CollectiveOp::kAllGather,
        .axis = shape.gradient,
        .message_bytes = shape_.rows * shape.k * training_.element_bytes,
        .count = Blocks()},
       hiding, sink);
}

double CollectiveWalk::GatherSeconds(int matrix) const {
  return rates_[GridAxis::kZ]->Seconds(CollectiveOp::kAllGather,
                                       matrices_[matrix].elements() * training_.element_bytes);
}

CollectiveWalk::PerMatrix CollectiveWalk::HiddenGathers(bool again) const {
  PerMatrix hidden{};
  if (shape_.grid.z() == 1 || !training_.overlaps.weight_gathers) return hidden;
  PerMatrix seconds{};
  for (int i = 0; i < kBlockMatrices; ++i) seconds[i] = GatherSeconds(i);
  GatherAhead gathers;
  const auto layers = static_cast<int>(std::min<int64_t>(shape_.layers, kLayersUntilSteady));
  for (int layer = 0; layer < layers; ++layer) {
    // Those that are alike follow the last one.
    const auto count = static_cast<double>(layer + 1 < layers ? 1 : shape_.layers - layer);
    if (again) gathers = GatherAhead();
    for (int i = 0; i < kBlockMatrices; ++i) {
      const int before = (i + kBlockMatrices - 1) % kBlockMatrices;
      const bool is_first = i == 0 && (layer == 0 || again);
      hidden[i] += count * gathers.Hidden(seconds[i], is_first ? 0 : FreeForward(before));
    }
  }
  for (double& of : hidden) of /= static_cast<double>(shape_.layers);
  return hidden;
}

void CollectiveWalk::ForwardMatrix(int matrix, absl::string_view pass, double hidden_gather,
                                   Sink sink) const {
  const MatrixShape& shape = matrices_[matrix];
  if (shape_.grid.z() > 1) {
    CollectiveUse gather = WeightGather(matrix);
    gather.pass = pass;
    if (pass == kRecompute) gather.count *= UncachedShare();
    Tell(gather, {hidden_gather, "the layer before"}, sink);
  }
  // The first half's sums run beside the second half's product.
  const double half = training_.overlaps.split_batch ? work_.product[matrix].forward / 2 : 0;
  const bool scattered = training_.activations == ActivationForm::kScattered;
  if (scattered) GatherInput(matrix, pass, {}, sink);
  if (shape_.grid[shape.summed] == 1) return;
  CollectiveUse sum{.pass = pass,
                    .object = blocks_[matrix].name,
                    .what = "output",
                    .op = scattered ? CollectiveOp::kReduceScatter : CollectiveOp::kAllReduce,
                    .axis = shape.summed,
                    .message_bytes = shape_.rows * shape.n * training_.element_bytes,
                    .count = Blocks()};
  const double seconds = rates_[sum.axis]->Seconds(sum.op, sum.message_bytes);
  Tell(sum, {std::min(half, seconds / 2), "the other half of the batch"}, sink);
}

// Keys and values of other parts of the sequence.
void CollectiveWalk::Attention(absl::string_view pass, Sink sink) const {
  if (shape_.grid.context() == 1) return;
  const Transformer& model = step_.model();
  const bool scattered = training_.activations == ActivationForm::kScattered;
  const auto parts = static_cast<double>(shape_.grid.r() * (scattered ? shape_.grid.c() : 1));
  const double kv = 2 * static_cast<double>(model.kv_width()) / parts;
  const double all = kv + 2 * static_cast<double>(model.query_width()) / parts;
  const bool ulysses = training_.context == ContextMethod::kUlysses;
  const bool back = pass == kBackward;
  CollectiveUse use{.pass = pass,
                    .object = "attention",
                    .what = ulysses ? "heads for parts" : "keys and values",
                    .op = ulysses ? CollectiveOp::kAllToAll : CollectiveOp::kAllGather,
                    .axis = GridAxis::kContext,
                    .count = Blocks()};
  if (ulysses) {
    use.message_bytes = shape_.rows * all * training_.element_bytes;
  } else {
    // Backward also their gradients.
    use.message_bytes = static_cast<double>(shape_.grid.context()) * shape_.rows * kv *
                        training_.element_bytes * (back ? 2 : 1);
  }
  Tell(use, {HasRing() ? work_.attention * (back ? 2 : 1) : 0, "attention"}, sink);
}

void CollectiveWalk::Experts(absl::string_view pass, Sink sink) const {
  const Transformer& model = step_.model();
  const Grid& grid = shape_.grid;
  if (model.experts == 0 || grid.expert() == 1) return;
  const bool scattered = training_.activations == ActivationForm::kScattered;
  const auto parts = static_cast<double>(grid.c() * (scattered ? grid.r() : 1));
  // There and back.
  Tell({.pass = pass,
        .object = "experts",
        .what = "tokens",
        .op = CollectiveOp::kAllToAll,
        .axis = GridAxis::kExpert,
        .message_bytes = shape_.rows * static_cast<double>(model.experts_per_token) *
                         training_.expert_imbalance * static_cast<double>(model.hidden) / parts *
                         training_.element_bytes,
        .count = 2 * Blocks()},
       {}, sink);
}

// ZeRO's third stage gathers whole blocks over their copies, one ahead: the farthest axis first.
void CollectiveWalk::ZeroGathers(absl::string_view pass, Sink sink) const {
  if (training_.zero < 3) return;
  PerAxis<double> elements;  // gathered over the axis
  for (int i = 0; i < kBlockMatrices; ++i) {
    double gathered = matrices_[i].elements() / static_cast<double>(shape_.grid.z());
    for (const GridAxis axis : kCopyAxes) {
      if (axis == GridAxis::kExpert && blocks_[i].of_experts) continue;
      elements[axis] += gathered;
      gathered /= static_cast<double>(shape_.grid[axis]);
    }
  }
  // Gathers over z have what time there is to hide.
  const bool ahead = training_.overlaps.weight_gathers && shape_.grid.z() == 1;
  double left = 0;
  for (int i = 0; ahead && i < kBlockMatrices; ++i) {
    left += pass == kForward ? FreeForward(i) : FreeBackward(i);
  }
  for (const GridAxis axis : {GridAxis::kData, GridAxis::kExpert, GridAxis::kContext}) {
    if (shape_.grid[axis] == 1) continue;
    Tell({.pass = pass,
          .object = "block",
          .what = "weights",
          .op = CollectiveOp::kAllGather,
          .axis = axis,
          .message_bytes = elements[axis] * training_.element_bytes,
          .count = Blocks()},
         {left, "the block before"}, [&](const CollectiveUse& use) {
           left -= use.hidden_seconds;
           sink(use);
         });
  }
}

void CollectiveWalk::Forward(Sink sink) const {
  ZeroGathers(kForward, sink);
  const PerMatrix hidden = HiddenGathers(/*again=*/false);
  for (int i = 0; i < kBlockMatrices; ++i) {
    if (i == kFirstExpertMatrix) Experts(kForward, sink);
    ForwardMatrix(i, kForward, hidden[i], sink);
    if (i == 0) Attention(kForward, sink);
  }
}

void CollectiveWalk::BackwardMatrix(int matrix, Sink sink) const {
  const MatrixShape& shape = matrices_[matrix];
  const Overlaps& overlaps = training_.overlaps;
  const bool scattered = training_.activations == ActivationForm::kScattered;
  const bool again = training_.recompute == Recompute::kFull;
  const LayerProducts product = overlaps.input_gradients ? work_.product[matrix] : LayerProducts();
  if (!again && shape_.grid.z() > 1) {
    const int after = (matrix + 1) % kBlockMatrices;
    CollectiveUse gather = WeightGather(matrix);
    gather.pass = kBackward;
    gather.count *= UncachedShare();
    Tell(gather, {overlaps.backward_gathers ? FreeBackward(after) : 0, "the layer after"}, sink);
  }
  if (scattered) {
    if (shape_.grid[shape.summed] > 1) {
      Tell({.pass = kBackward,
            .object = blocks_[matrix].name,
            .what = "output gradient",
            .op = CollectiveOp::kAllGather,
            .axis = shape.summed,
            .message_bytes = shape_.rows * shape.n * training_.element_bytes,
            .count = Blocks()},
           {}, sink);
    }
    if (!again && !training_.keep_gathered) {
      GatherInput(matrix, kBackward, {product.input_gradient, "the product of the input gradient"},
                  sink);
    }
  }
  if (shape_.grid[shape.gradient] == 1) return;
  Tell({.pass = kBackward,
        .object = blocks_[matrix].name,
        .what = "input gradient",
        .op = scattered ? CollectiveOp::kReduceScatter : CollectiveOp::kAllReduce,
        .axis = shape.gradient,
        .message_bytes = shape_.rows * shape.k * training_.element_bytes,
        .count = Blocks()},
       {product.weight_gradient, "the product of the weight gradient"}, sink);
}

// They hide behind what the backward of earlier layers leaves free, but for the last one.
void CollectiveWalk::Scatters(double window_seconds, Sink sink) const {
  if (shape_.grid.z() == 1) return;
  double of_block = 0;
  for (int i = 0; i < kBlockMatrices; ++i) {
    of_block += rates_[GridAxis::kZ]->Seconds(CollectiveOp::kReduceScatter,
                                              matrices_[i].elements() * training_.element_bytes);
  }
  const double last = rates_[GridAxis::kZ]->Seconds(
      CollectiveOp::kReduceScatter, matrices_[0].elements() * training_.element_bytes);
  const double all = of_block * Blocks();
  const double hidden = training_.overlaps.weight_gradients
                            ? std::min(all - last, std::max(0.0, window_seconds) * Blocks())
                            : 0;
  for (int i = kBlockMatrices - 1; i >= 0; --i) {
    CollectiveUse scatter = WeightGather(i);
    scatter.pass = kBackward;
    scatter.what = "weight gradient";
    scatter.op = CollectiveOp::kReduceScatter;
    const double seconds = rates_[GridAxis::kZ]->Seconds(scatter.op, scatter.message_bytes);
    Tell(scatter, {seconds * hidden / all, "the backward of earlier layers"}, sink);
  }
}

void CollectiveWalk::Backward(Sink sink) const {
  double hidden = 0;  // of one block
  const auto counted = [&](const CollectiveUse& use) {
    hidden += use.hidden_seconds * use.count / Blocks();
    sink(use);
  };
  double compute = work_.backward();
  if (training_.recompute == Recompute::kFull) {
    compute += work_.forward();
    const PerMatrix again = HiddenGathers(/*again=*/true);
    for (int i = 0; i < kBlockMatrices; ++i) {
      if (i == kFirstExpertMatrix) Experts(kRecompute, counted);
      ForwardMatrix(i, kRecompute, again[i], counted);
      if (i == 0) Attention(kRecompute, counted);
    }
  }
  ZeroGathers(kBackward, counted);
  for (int i = kBlockMatrices - 1; i >= 0; --i) {
    BackwardMatrix(i, counted);
    if (i == kFirstExpertMatrix) Experts(kBackward, counted);
    if (i == 1) Attention(kBackward, counted);
  }
  Scatters(compute - hidden, sink);
}

// Axis after axis, each of what the one before has left of it.
void CollectiveWalk::SumOverCopies(absl::string_view object, double elements, bool over_experts,
                                   Sink sink) const {
  double message = elements * training_.data_gradient_bytes;
  double weights = elements * training_.element_bytes;
  for (const GridAxis axis : kCopyAxes) {
    if (shape_.grid[axis] == 1 || (axis == GridAxis::kExpert && !over_experts)) continue;
    CollectiveUse use{
        .pass = kStepEnd,
        .object = object,
        .what = "gradients",
        .op = training_.zero == 0 ? CollectiveOp::kAllReduce : CollectiveOp::kReduceScatter,
        .axis = axis,
        .message_bytes = message,
        .count = 1};
    Tell(use, {}, sink);
    if (training_.zero == 1 || training_.zero == 2) {
      use.what = "weights";
      use.op = CollectiveOp::kAllGather;
      use.message_bytes = weights;
      Tell(use, {}, sink);
    }
    message /= static_cast<double>(shape_.grid[axis]);
    weights /= static_cast<double>(shape_.grid[axis]);
  }
}

void CollectiveWalk::StepEnd(Sink sink) const {
  double dense = 0;
  double experts = 0;
  for (int i = 0; i < kBlockMatrices; ++i) {
    (blocks_[i].of_experts ? experts : dense) += matrices_[i].elements();
  }
  const double stored = static_cast<double>(shape_.layers) / static_cast<double>(shape_.grid.z());
  const double embedding = static_cast<double>(step_.model().vocabulary * step_.model().hidden) /
                           static_cast<double>(shape_.grid.tensor_degree());
  SumOverCopies("gradients", dense * stored + embedding, true, sink);
  if (experts > 0) SumOverCopies("experts", experts * stored, false, sink);
  VectorGradients(sink);
}

// Devices that hold copies send a piece each, which those of the next stage gather.
CollectiveUse CollectiveWalk::Transfer() const {
  const Grid& grid = shape_.grid;
  const double message = shape_.rows * static_cast<double>(step_.model().hidden) /
                         static_cast<double>(grid.c()) * training_.element_bytes;
  CollectiveUse use{.pass = kForward,
                    .object = "stage",
                    .what = "activations and gradients",
                    .op = CollectiveOp::kSend,
                    .axis = GridAxis::kPipeline,
                    .message_bytes = message / static_cast<double>(grid.r()),
                    .count = static_cast<double>(2 * shape_.microbatches * training_.chunks)};
  use.seconds = rates_[use.axis]->Seconds(use.op, use.message_bytes);
  if (training_.activations == ActivationForm::kReplicated) {
    use.seconds += rates_[GridAxis::kR]->Seconds(CollectiveOp::kAllGather, message);
  }
  return use;
}

}  // namespace crossmesh
