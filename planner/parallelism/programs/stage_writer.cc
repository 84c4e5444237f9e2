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
    : settings_(std::move(settings)), transfers_(settings_.sizes), program_(program) {
  AddUses();
}

void StageWriter::AddUses() {
  const std::array<BlockMatrix, kBlockMatrices> matrices = MatricesOf(settings_.model);
  const BlockWork& work = settings_.work;
  for (int64_t layer = 0; layer < settings_.layers; ++layer) {
    for (int i = 0; i < kBlockMatrices; ++i) {
      const bool comes_after_attention = i == kFirstMlpMatrix - 1;
      uses_.push_back({.matrix = matrices[i],
                       .layer = settings_.first_layer + layer,
                       .seconds = work.product[i],
                       .around = work.elementwise / kBlockMatrices +
                                 (comes_after_attention ? work.attention : 0),
                       .is_normed = !matrices[i].transposed,
                       // The last ones, since these are needed again first.
                       .is_kept = settings_.layers - layer <= settings_.training.cached_layers});
    }
  }
  if (!settings_.is_last) return;
  uses_.push_back(
      {.matrix = {.name = "logits", .k = settings_.model.hidden, .n = settings_.model.vocabulary},
       .layer = std::nullopt,
       .seconds = settings_.logits,
       .is_normed = true,
       .is_kept = settings_.training.cached_layers > 0});
}

void StageWriter::AddOp(GridOpKind kind, const Use* use, double seconds, int32_t half) {
  GridOp op{.kind = kind, .microbatch = microbatch_, .half = half};
  if (use != nullptr) {
    op.layer = use->layer;
    op.matrix = std::string(use->matrix.name);
  }
  program_.AddOp(settings_.rank, ToString(op), seconds);
}

void StageWriter::Give(const Transfer& transfer) {
  if (transfer.has_value()) program_.Give(*transfer);
}

void StageWriter::Need(const Transfer& transfer) {
  if (transfer.has_value()) program_.Need(transfer->name);
}

bool StageWriter::IsAhead(const Use& use, GridOpKind kind) const {
  const Overlaps& overlaps = settings_.training.overlaps;
  if (kind == GridOpKind::kGive) return overlaps.weight_gathers;
  return overlaps.backward_gathers && !use.is_kept;
}

void StageWriter::GiveWeights(size_t place, GridOpKind kind) {
  const Use& use = uses_[place];
  const bool is_backward = kind == GridOpKind::kGiveBack;
  if (is_backward && use.is_kept) return;
  const Transfer gather =
      is_backward ? transfers_.BackwardGather(use.matrix) : transfers_.Gather(use.matrix);
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

void StageWriter::ForwardOf(size_t place) {
  const Use& use = uses_[place];
  const Transfer norm_sum = use.is_normed ? transfers_.NormSum(use.matrix) : std::nullopt;
  const Transfer rows = transfers_.Rows(use.matrix);
  if (place == 0 || !IsAhead(use, GridOpKind::kGive)) GiveWeights(place, GridOpKind::kGive);
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
  if (place + 1 < uses_.size() && IsAhead(uses_[place + 1], GridOpKind::kGive)) {
    GiveWeights(place + 1, GridOpKind::kGive);
  }
  awaited_ = transfers_.Sum(use.matrix);
  ForHalves([&](int32_t half) {
    AddOp(GridOpKind::kForward, &use, PartOf(use.seconds.forward), half);
    Need(rows);
    if (half <= 0) Need(transfers_.Gather(use.matrix));
    Give(awaited_);
  });
}

void StageWriter::Loss() {
  ForHalves([this](int32_t half) {
    AddOp(GridOpKind::kLoss, nullptr, 0, half);
    Need(awaited_);
    Give(transfers_.LossMax());
  });
  ForHalves([this](int32_t half) {
    AddOp(GridOpKind::kLossSum, nullptr, 0, half);
    Need(transfers_.LossMax());
    Give(transfers_.LossSum());
  });
  ForHalves([this](int32_t half) {
    AddOp(GridOpKind::kBackward, nullptr, 0, half);
    Need(transfers_.LossSum());
  });
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
  for (size_t place = uses_.size(); place-- > 0;) BackwardOf(place);
  ForHalves([this](int32_t half) {
    AddOp(settings_.is_first ? GridOpKind::kEmbedGradient : GridOpKind::kLeaveBack, nullptr, 0,
          half);
    Need(awaited_);
    Give(settings_.gradients_out);
  });
}

void StageWriter::BackwardOf(size_t place) {
  const Use& use = uses_[place];
  if (place + 1 == uses_.size() || !IsAhead(use, GridOpKind::kGiveBack)) {
    GiveWeights(place, GridOpKind::kGiveBack);
  }
  ForHalves([&](int32_t half) {
    AddOp(GridOpKind::kOutputGradient, &use, PartOf(2 * use.around), half);
    Need(awaited_);
    Give(transfers_.GradientRows(use.matrix));
  });
  if (place > 0 && IsAhead(uses_[place - 1], GridOpKind::kGiveBack)) {
    GiveWeights(place - 1, GridOpKind::kGiveBack);
  }
  awaited_ = transfers_.GradientSum(use.matrix);
  const Overlaps& overlaps = settings_.training.overlaps;
  // Without a sum that the weights' product could hide, its own scatter goes first.
  const bool weights_first = !awaited_.has_value() && overlaps.weight_gradients &&
                             !transfers_.GradientRows(use.matrix).has_value();
  if (weights_first) WeightGradient(use);
  InputGradient(use);
  if (!overlaps.input_gradients && awaited_.has_value()) {
    ForHalves([&](int32_t half) {
      AddOp(GridOpKind::kWaitGradient, &use, 0, half);
      Need(awaited_);
    });
    awaited_ = std::nullopt;
  }
  if (!weights_first) WeightGradient(use);
  if (!use.is_normed) return;
  const Transfer norm_gradient = transfers_.NormGradientSum(use.matrix);
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
    Need(transfers_.GradientRows(use.matrix));
    if (half <= 0 && !use.is_kept) Need(transfers_.BackwardGather(use.matrix));
    Give(awaited_);
  });
}

void StageWriter::WeightGradient(const Use& use) {
  const Transfer scatter = transfers_.Scatter(use.matrix);
  const std::string matrix(use.matrix.name);
  if (scatter.has_value() && std::ssize(pending_[matrix]) >= settings_.sizes.scatter_buffers) {
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
  Need(transfers_.Scatter(oldest.use->matrix));
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
      Give(transfers_.DataSum(uses_[place].matrix));
    }
    if (place == 0) continue;
    AddOp(GridOpKind::kUpdate, &uses_[place - 1], 0);
    Need(transfers_.DataSum(uses_[place - 1].matrix));
  }
  UpdateVectors();
}

StageWriter::VectorSizes StageWriter::SizesOfVectors() const {
  const Transformer& model = settings_.model;
  const BlockVectors of_block = VectorsOf(model);
  VectorSizes sizes{.of_c = settings_.layers * of_block.of_c,
                    .of_r = settings_.layers * of_block.of_r};
  if (settings_.is_last) sizes.of_c += 2 * model.hidden;
  if (settings_.is_first) {
    sizes.of_embeddings = (model.vocabulary + settings_.training.sequence) * model.hidden;
  }
  return sizes;
}

void StageWriter::Begin() {
  if (!settings_.sizes.diagonal) return;
  const VectorSizes sizes = SizesOfVectors();
  const Transfer of_c = transfers_.SpreadVectors(GridAxis::kC, sizes.of_c);
  const Transfer of_r = transfers_.SpreadVectors(GridAxis::kR, sizes.of_r);
  AddOp(GridOpKind::kSpreadVectors, nullptr, 0);
  Give(of_c);
  Give(of_r);
  AddOp(GridOpKind::kTakeVectors, nullptr, 0);
  Need(of_c);
  Need(of_r);
}

void StageWriter::Vectors() {
  const VectorSizes sizes = SizesOfVectors();
  const bool diagonal = settings_.sizes.diagonal;
  AddOp(GridOpKind::kVectors, nullptr, 0);
  Give(transfers_.Vectors(GridAxis::kC, sizes.of_embeddings + (diagonal ? 0 : sizes.of_c)));
  if (!diagonal) return Give(transfers_.Vectors(GridAxis::kR, sizes.of_r));
  Give(transfers_.ScatterVectors(GridAxis::kC, sizes.of_c));
  Give(transfers_.ScatterVectors(GridAxis::kR, sizes.of_r));
}

void StageWriter::UpdateVectors() {
  const VectorSizes sizes = SizesOfVectors();
  const bool diagonal = settings_.sizes.diagonal;
  const Transfer of_c = transfers_.ReduceVectors(GridAxis::kC, sizes.of_c);
  const Transfer of_r = transfers_.ReduceVectors(GridAxis::kR, sizes.of_r);
  if (diagonal) {
    AddOp(GridOpKind::kReduceVectors, nullptr, 0);
    Need(transfers_.ScatterVectors(GridAxis::kC, sizes.of_c));
    Need(transfers_.ScatterVectors(GridAxis::kR, sizes.of_r));
    Give(of_c);
    Give(of_r);
  }
  AddOp(GridOpKind::kUpdateVectors, nullptr, 0);
  Need(transfers_.Vectors(GridAxis::kC, sizes.of_embeddings + (diagonal ? 0 : sizes.of_c)));
  if (!diagonal) return Need(transfers_.Vectors(GridAxis::kR, sizes.of_r));
  Need(of_c);
  Need(of_r);
}

}  // namespace crossmesh
