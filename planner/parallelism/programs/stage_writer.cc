#include "planner/parallelism/programs/stage_writer.h"

#include <algorithm>
#include <array>
#include <utility>

namespace crossmesh {
namespace {

// Normal layers come after a norm.
constexpr int kFirstMlpMatrix = 2;

}  // namespace

StageWriter::StageWriter(StageSettings settings, ProgramWriter& program)
    : settings_(std::move(settings)), program_(program) {
  for (const StageGrid& grid : settings_.grids) transfers_.emplace_back(grid.sizes);
  AddUses();
}

void StageWriter::AddUses() {
  const std::array<BlockMatrix, kBlockMatrices> matrices = MatricesOf(settings_.model);
  const PartsOnGrids& parts = settings_.parts;
  const int64_t layers = std::ssize(parts.places) / 2;
  for (size_t part = 0; part < parts.places.size(); ++part) {
    const size_t grid = parts.grid_of[part];
    const auto& [sizes, work, logits] = settings_.grids[grid];
    if (parts.places[part].part == ModelPart::kLogits) {
      uses_.push_back({.matrix = {.name = "logits",
                                  .k = settings_.model.hidden,
                                  .n = settings_.model.vocabulary},
                       .layer = std::nullopt,
                       .grid = grid,
                       .seconds = logits,
                       .is_normed = true,
                       .is_kept = settings_.training.cached_layers > 0,
                       .is_joint = parts.IsJoint(part)});
      continue;
    }
    const int first = parts.places[part].part == ModelPart::kAttention ? 0 : kFirstMlpMatrix;
    for (int i = first; i < first + kFirstMlpMatrix; ++i) {
      const bool comes_after_attention = i == kFirstMlpMatrix - 1;
      uses_.push_back(
          {.matrix = matrices[i],
           .layer = parts.places[part].layer,
           .grid = grid,
           .seconds = work.product[i],
           .around =
               work.elementwise / kBlockMatrices + (comes_after_attention ? work.attention : 0),
           .is_normed = !matrices[i].transposed,
           // The last ones, since these are needed again first.
           .is_kept = layers - static_cast<int64_t>(part / 2) <= settings_.training.cached_layers,
           .is_joint = i == first && parts.IsJoint(part)});
    }
  }
}

void StageWriter::AddOp(GridOpKind kind, const Use* use, double seconds, int32_t half) {
  GridOp op{.kind = kind, .microbatch = microbatch_, .half = half, .stage = settings_.number};
  if (use != nullptr) {
    op.layer = use->layer;
    op.matrix = std::string(use->matrix.name);
  }
  program_.AddOp(
      {.name = ToString(op), .rank = settings_.rank, .seconds = seconds, .layer = LayerNameOf(op)});
}

void StageWriter::Give(const Transfer& transfer) {
  if (transfer.has_value()) program_.Give(*transfer);
}

void StageWriter::Need(const Transfer& transfer) {
  if (transfer.has_value()) program_.Need(transfer->name);
}

bool StageWriter::AreAhead(GridOpKind kind) const {
  const Overlaps& overlaps = settings_.training.overlaps;
  return kind == GridOpKind::kGive ? overlaps.weight_gathers : overlaps.backward_gathers;
}

void StageWriter::GiveWeights(size_t place, GridOpKind kind) {
  const Use& use = uses_[place];
  const bool is_backward = kind == GridOpKind::kGiveBack;
  if (is_backward && use.is_kept) return;
  const Transfer gather =
      is_backward ? On(use).BackwardGather(use.matrix) : On(use).Gather(use.matrix);
  if (!gather.has_value()) return;
  AddOp(kind, &use, 0);
  Give(gather);
}

void StageWriter::Forward(MicrobatchIndex microbatch) {
  microbatch_ = microbatch;
  awaited_ = std::nullopt;
  ForHalves([this](int32_t half) {
    AddOp(settings_.is_first ? GridOpKind::kEmbed : GridOpKind::kArrive, nullptr, 0, half);
    Need(settings_.activations_in);
  });
  for (size_t place = 0; place < uses_.size(); ++place) ForwardOf(place);
  if (settings_.is_last) return Loss();
  ForHalves([this](int32_t half) {
    AddOp(GridOpKind::kLeave, nullptr, 0, half);
    Need(awaited_);
    Give(settings_.activations_out);
  });
}

void StageWriter::Join(size_t place) {
  const Use& use = uses_[place];
  const Transfer stream = On(uses_[place - 1]).Joining("activations", On(use));
  ForHalves([&](int32_t half) {
    AddOp(GridOpKind::kLeave, &use, 0, half);
    Need(awaited_);
    Give(stream);
  });
  ForHalves([&](int32_t half) {
    AddOp(GridOpKind::kArrive, &use, 0, half);
    Need(stream);
  });
  awaited_ = std::nullopt;
}

void StageWriter::JoinBack(size_t place) {
  const Use& use = uses_[place];
  const Transfer gradient = On(use).Joining("gradients", On(uses_[place - 1]));
  ForHalves([&](int32_t half) {
    AddOp(GridOpKind::kLeaveBack, &use, 0, half);
    Need(awaited_);
    Give(gradient);
  });
  ForHalves([&](int32_t half) {
    AddOp(GridOpKind::kArriveBack, &use, 0, half);
    Need(gradient);
  });
  awaited_ = std::nullopt;
}

void StageWriter::ForwardOf(size_t place) {
  const Use& use = uses_[place];
  const Transfer norm_sum = use.is_normed ? On(use).NormSum(use.matrix) : std::nullopt;
  const Transfer rows = On(use).Rows(use.matrix);
  if (use.is_joint) Join(place);
  const bool is_ahead = AreAhead(GridOpKind::kGive);
  if (place == 0 && is_ahead) GiveWeights(place, GridOpKind::kGive);
  if (use.is_normed) {
    ForHalves([&](int32_t half) {
      AddOp(GridOpKind::kNorm, &use, 0, half);
      Need(awaited_);
      Give(norm_sum);
    });
  }
  ForHalves([&](int32_t half) {
    AddOp(GridOpKind::kInput, &use, PartOf(use.around), half);
    Need(use.is_normed ? norm_sum : awaited_);
    Give(rows);
  });
  // Right before the product, so that nothing hides it.
  if (!is_ahead) GiveWeights(place, GridOpKind::kGive);
  if (place + 1 < uses_.size() && is_ahead) GiveWeights(place + 1, GridOpKind::kGive);
  awaited_ = On(use).Sum(use.matrix);
  ForHalves([&](int32_t half) {
    AddOp(GridOpKind::kForward, &use, PartOf(use.seconds.forward), half);
    Need(rows);
    if (half <= 0) Need(On(use).Gather(use.matrix));
    Give(awaited_);
  });
}

void StageWriter::Loss() {
  const GridTransfers& transfers = On(uses_.back());
  ForHalves([&](int32_t half) {
    AddOp(GridOpKind::kLoss, nullptr, 0, half);
    Need(awaited_);
    Give(transfers.LossMax());
  });
  ForHalves([&](int32_t half) {
    AddOp(GridOpKind::kLossSum, nullptr, 0, half);
    Need(transfers.LossMax());
    Give(transfers.LossSum());
  });
  ForHalves([&](int32_t half) {
    AddOp(GridOpKind::kBackward, nullptr, 0, half);
    Need(transfers.LossSum());
  });
}

void StageWriter::BackwardInputs(MicrobatchIndex microbatch) {
  defers_weights_ = true;
  Backward(microbatch);
  defers_weights_ = false;
}

void StageWriter::BackwardWeights(MicrobatchIndex microbatch) {
  microbatch_ = microbatch;
  for (size_t place = uses_.size(); place-- > 0;) WeightGradient(uses_[place]);
}

void StageWriter::Backward(MicrobatchIndex microbatch) {
  microbatch_ = microbatch;
  awaited_ = std::nullopt;
  if (!settings_.is_last) {
    ForHalves([this](int32_t half) {
      AddOp(GridOpKind::kArriveBack, nullptr, 0, half);
      Need(settings_.gradients_in);
    });
  }
  for (size_t place = uses_.size(); place-- > 0;) {
    BackwardOf(place);
    if (uses_[place].is_joint) JoinBack(place);
  }
  ForHalves([this](int32_t half) {
    AddOp(settings_.is_first ? GridOpKind::kEmbedGradient : GridOpKind::kLeaveBack, nullptr, 0,
          half);
    Need(awaited_);
    Give(settings_.gradients_out);
  });
}

void StageWriter::BackwardOf(size_t place) {
  const Use& use = uses_[place];
  const bool is_ahead = AreAhead(GridOpKind::kGiveBack);
  if (place + 1 == uses_.size() && is_ahead) GiveWeights(place, GridOpKind::kGiveBack);
  ForHalves([&](int32_t half) {
    AddOp(GridOpKind::kOutputGradient, &use, PartOf(2 * use.around), half);
    Need(awaited_);
    Give(On(use).GradientRows(use.matrix));
  });
  if (!is_ahead) GiveWeights(place, GridOpKind::kGiveBack);
  if (place > 0 && is_ahead) GiveWeights(place - 1, GridOpKind::kGiveBack);
  awaited_ = On(use).GradientSum(use.matrix);
  const Overlaps& overlaps = settings_.training.overlaps;
  // Without a sum that the weights' product could hide, its own scatter goes first.
  const bool weights_first = !defers_weights_ && !awaited_.has_value() &&
                             overlaps.weight_gradients &&
                             !On(use).GradientRows(use.matrix).has_value();
  if (weights_first) WeightGradient(use);
  InputGradient(use);
  if (!overlaps.input_gradients && awaited_.has_value()) {
    ForHalves([&](int32_t half) {
      AddOp(GridOpKind::kWaitGradient, &use, 0, half);
      Need(awaited_);
    });
    awaited_ = std::nullopt;
  }
  if (!weights_first && !defers_weights_) WeightGradient(use);
  if (!use.is_normed) return;
  const Transfer norm_gradient = On(use).NormGradientSum(use.matrix);
  ForHalves([&](int32_t half) {
    AddOp(GridOpKind::kNormGradient, &use, 0, half);
    Need(awaited_);
    Give(norm_gradient);
  });
  awaited_ = norm_gradient;
}

void StageWriter::InputGradient(const Use& use) {
  ForHalves([&](int32_t half) {
    AddOp(GridOpKind::kInputGradient, &use, PartOf(use.seconds.input_gradient), half);
    Need(On(use).GradientRows(use.matrix));
    if (half <= 0 && !use.is_kept) Need(On(use).BackwardGather(use.matrix));
    Give(awaited_);
  });
}

void StageWriter::WeightGradient(const Use& use) {
  const Transfer scatter = On(use).Scatter(use.matrix);
  const std::string matrix(use.matrix.name);
  if (scatter.has_value() &&
      std::ssize(pending_[matrix]) >= settings_.grids[use.grid].sizes.scatter_buffers) {
    Take(matrix);
  }
  AddOp(GridOpKind::kWeightGradient, &use, use.seconds.weight_gradient);
  if (!scatter.has_value()) return;
  Give(scatter);
  pending_[matrix].push_back({.use = &use, .microbatch = microbatch_});
  if (!settings_.training.overlaps.weight_gradients) Take(matrix);
}

void StageWriter::Take(const std::string& matrix) {
  const Pending oldest = pending_[matrix].front();
  pending_[matrix].pop_front();
  const std::optional<MicrobatchIndex> now = std::exchange(microbatch_, oldest.microbatch);
  AddOp(GridOpKind::kTake, oldest.use, 0);
  Need(On(*oldest.use).Scatter(oldest.use->matrix));
  microbatch_ = now;
}

void StageWriter::Finish() {
  // In the order in which they were given, so that the last ones have longest.
  for (bool more = true; more;) {
    more = false;
    for (auto& [matrix, pending] : pending_) {
      if (pending.empty()) continue;
      Take(matrix);
      more = true;
    }
  }
  microbatch_ = std::nullopt;
  Vectors();
  for (size_t place = 0; place <= uses_.size(); ++place) {
    // The sum of one runs beside what the one before does with its own.
    if (place < uses_.size()) {
      AddOp(GridOpKind::kData, &uses_[place], 0);
      Give(On(uses_[place]).DataSum(uses_[place].matrix));
    }
    if (place == 0) continue;
    AddOp(GridOpKind::kUpdate, &uses_[place - 1], 0);
    Need(On(uses_[place - 1]).DataSum(uses_[place - 1].matrix));
  }
  UpdateVectors();
}

StageWriter::VectorSizes StageWriter::SizesOfVectors(size_t grid) const {
  const Transformer& model = settings_.model;
  const std::array<BlockVectors, 2> of_halves = VectorsOfHalves(model);
  const PartsOnGrids& parts = settings_.parts;
  VectorSizes sizes;
  for (size_t part = 0; part < parts.places.size(); ++part) {
    if (parts.grid_of[part] != static_cast<int32_t>(grid)) continue;
    const ModelPart of = parts.places[part].part;
    const BlockVectors vectors = of == ModelPart::kLogits ? BlockVectors{.of_c = 2 * model.hidden}
                                                          : of_halves[static_cast<size_t>(of)];
    sizes.of_c += vectors.of_c;
    sizes.of_r += vectors.of_r;
  }
  if (settings_.is_first && parts.grid_of.front() == static_cast<int32_t>(grid)) {
    sizes.of_embeddings = (model.vocabulary + settings_.training.sequence) * model.hidden;
  }
  return sizes;
}

// Vectors on the diagonal are those of one grid.
void StageWriter::Begin() {
  if (!diagonal()) return;
  const VectorSizes sizes = SizesOfVectors(0);
  const GridTransfers& transfers = transfers_.front();
  const Transfer of_c = transfers.SpreadVectors(GridAxis::kC, sizes.of_c);
  const Transfer of_r = transfers.SpreadVectors(GridAxis::kR, sizes.of_r);
  AddOp(GridOpKind::kSpreadVectors, nullptr, 0);
  Give(of_c);
  Give(of_r);
  AddOp(GridOpKind::kTakeVectors, nullptr, 0);
  Need(of_c);
  Need(of_r);
}

std::vector<StageWriter::Transfer> StageWriter::VectorSums() const {
  std::vector<Transfer> sums;
  for (size_t grid = 0; grid < transfers_.size(); ++grid) {
    const VectorSizes sizes = SizesOfVectors(grid);
    const GridTransfers& transfers = transfers_[grid];
    sums.push_back(
        transfers.Vectors(GridAxis::kC, sizes.of_embeddings + (diagonal() ? 0 : sizes.of_c)));
    if (!diagonal()) {
      sums.push_back(transfers.Vectors(GridAxis::kR, sizes.of_r));
      continue;
    }
    sums.push_back(transfers.ScatterVectors(GridAxis::kC, sizes.of_c));
    sums.push_back(transfers.ScatterVectors(GridAxis::kR, sizes.of_r));
  }
  return sums;
}

void StageWriter::Vectors() {
  AddOp(GridOpKind::kVectors, nullptr, 0);
  for (const Transfer& sum : VectorSums()) Give(sum);
}

void StageWriter::UpdateVectors() {
  const std::vector<Transfer> sums = VectorSums();
  if (!diagonal()) {
    AddOp(GridOpKind::kUpdateVectors, nullptr, 0);
    for (const Transfer& sum : sums) Need(sum);
    return;
  }
  const VectorSizes sizes = SizesOfVectors(0);
  const Transfer of_c = transfers_.front().ReduceVectors(GridAxis::kC, sizes.of_c);
  const Transfer of_r = transfers_.front().ReduceVectors(GridAxis::kR, sizes.of_r);
  AddOp(GridOpKind::kReduceVectors, nullptr, 0);
  Need(sums[1]);
  Need(sums[2]);
  Give(of_c);
  Give(of_r);
  AddOp(GridOpKind::kUpdateVectors, nullptr, 0);
  Need(sums[0]);
  Need(of_c);
  Need(of_r);
}

}  // namespace crossmesh
