#include "examples/pipeline_training/testing/planned_loops.h"

#include "common/base/check.h"
#include "planner/pipeline/planning/microbatch_sizes.h"

#include <cmath>
#include <deque>
#include <limits>
#include <span>
#include <utility>

#include <absl/time/time.h>
#include <gtest/gtest.h>

namespace crossmesh::training {
namespace {

constexpr float kUnwritten = std::numeric_limits<float>::quiet_NaN();

// The boxes of a tile, one after the other, in `memory`.
template <typename Visit>
void VisitBoxes(const Tile& tile, float* memory, Visit visit) {
  for (const Box& box : tile) {
    Eigen::Map<Matrix> part(memory, box[0].length(), box[1].length());
    visit(box, part);
    memory += box.volume();
  }
}

void Cut(const Matrix& whole, const Tile& tile, float* memory) {
  VisitBoxes(tile, memory, [&whole](const Box& box, Eigen::Map<Matrix>& part) {
    part = whole.block(box[0].begin, box[1].begin, part.rows(), part.cols());
  });
}

void PutTogether(const Tile& tile, float* memory, Matrix& whole) {
  VisitBoxes(tile, memory, [&whole](const Box& box, const Eigen::Map<Matrix>& part) {
    for (Eigen::Index row = 0; row < part.rows(); ++row) {
      for (Eigen::Index column = 0; column < part.cols(); ++column) {
        float& element = whole(box[0].begin + row, box[1].begin + column);
        if (!std::isnan(element)) EXPECT_EQ(element, part(row, column)) << "replicas differ";
        element = part(row, column);
      }
    }
  });
}

}  // namespace

class PlannedLoops::Loop : public PipelineLoop {
 public:
  Loop(PlannedLoops& all, RankIndex rank)
      : all_(all),
        table_(*all.planned_->ops),
        rank_(rank),
        iteration_(all.options_.first_iteration),
        first_steps_(all.FirstSteps()) {
    for (OpIndex i = table_.first(rank); i < table_.first(rank + 1); ++i) {
      ops_.push_back(table_.op(i));
    }
  }

  RankIndex rank() const override { return rank_; }
  const std::vector<Op>& ops() const override { return ops_; }

  PipelineStep Next() override {
    if (!first_steps_.empty()) {
      PipelineStep first = std::move(first_steps_.front());
      first_steps_.pop_front();
      is_asked_ = first.kind == PipelineStep::Kind::kStateLost;
      return first;
    }
    if (next_ == ops_.size()) {
      const absl::Status barrier = all_.WaitForBarrier(rank_, iteration_);
      if (!barrier.ok()) return {.why = barrier};
      next_ = 0;
      return {.kind = PipelineStep::Kind::kComplete, .iteration = iteration_++};
    }
    if (const absl::Status why = all_.why(); !why.ok()) return {.why = why};
    if (iteration_ == all_.options_.first_iteration + all_.options_.iterations) return {};
    const bool is_pair = ops_[next_].is_fused;
    step_.clear();
    step_.resize(is_pair ? 2 : 1);
    for (size_t i = 0; i < step_.size(); ++i) {
      const absl::Status inputs = Make(ops_[next_ + i], step_[i]);
      if (!inputs.ok()) return {.why = inputs};
    }
    if (!is_pair) return {.kind = PipelineStep::Kind::kOp, .op = &step_[0].op};
    return {.kind = PipelineStep::Kind::kPair, .op = &step_[0].op, .backward = &step_[1].op};
  }

  // Waits inside Next.
  bool WaitForNext(absl::Duration /*timeout*/) override { return true; }

  void Done() override {
    if (std::exchange(is_asked_, false)) return;
    for (Given& given : step_) {
      ++next_;
      all_.OnDone(MessagesOf(given));
    }
  }

  void Fail(const absl::Status& why) override { all_.Cut(why); }

  void Leave() override { all_.Cut(absl::CancelledError("left")); }

 private:
  // An op of the step, and the memory of its tensors, by transfer, tensor and slot.
  struct Given {
    PipelineOp op;
    std::deque<std::vector<float>> inputs, outputs;
  };

  std::vector<std::pair<MessageKey, Message>> MessagesOf(Given& given) const {
    const PipelineOp& op = given.op;
    std::vector<std::pair<MessageKey, Message>> messages;
    auto memory = given.outputs.begin();
    for (const TransferIndex transfer : table_.TransfersOutOf(op.op)) {
      Message message;
      for (const auto& tensor : EdgeOf(transfer).tensors) {
        const std::vector<Tile> tiles = TilesOf(op, transfer, tensor);
        const TensorSpec spec = *TensorOfSize(tensor, op.samples);
        Matrix& whole =
            message.emplace_back(Matrix::Constant(spec.shape[0], spec.shape[1], kUnwritten));
        for (const Tile& tile : tiles) PutTogether(tile, (memory++)->data(), whole);
        EXPECT_FALSE(whole.hasNaN()) << op.op << " has not given all of " << spec.name;
      }
      messages.emplace_back(MessageKey{transfer, op.op.microbatch}, std::move(message));
    }
    return messages;
  }

  absl::Status Make(const Op& op, Given& given) {
    given.op = {.iteration = iteration_,
                .op = op,
                .samples = all_.planned_->description.samples[op.microbatch]};
    for (const TransferIndex transfer : table_.TransfersInto(op)) {
      Message message;
      const absl::Status waited = all_.WaitForMessage({transfer, op.microbatch}, message);
      if (!waited.ok()) return waited;
      for (size_t t = 0; t < message.size(); ++t) {
        const auto& tensor = EdgeOf(transfer).tensors[t];
        given.op.inputs.push_back(TensorOf(given.op, transfer, tensor, given.inputs));
        const std::vector<Tile> tiles = TilesOf(given.op, transfer, tensor);
        auto memory = given.inputs.end() - static_cast<std::ptrdiff_t>(tiles.size());
        for (const Tile& tile : tiles) training::Cut(message[t], tile, (memory++)->data());
      }
    }
    for (const TransferIndex transfer : table_.TransfersOutOf(op)) {
      for (const auto& tensor : EdgeOf(transfer).tensors) {
        given.op.outputs.push_back(TensorOf(given.op, transfer, tensor, given.outputs));
      }
    }
    return absl::OkStatus();
  }

  const PipelineDescription::Edge& EdgeOf(TransferIndex transfer) const {
    return all_.planned_->description.edges[transfer / 2];
  }
  // The op's stage has the one layout or the other, whichever way the tensor goes.
  const Layout& LayoutOf(const PipelineOp& op, TransferIndex transfer,
                         const PipelineDescription::Tensor& tensor) const {
    return EdgeOf(transfer).from == op.op.stage ? tensor.source : tensor.destination;
  }
  const Mesh& MeshOf() const { return *all_.planned_->description.ranks[rank_].mesh; }
  std::vector<Tile> TilesOf(const PipelineOp& op, TransferIndex transfer,
                            const PipelineDescription::Tensor& tensor) const {
    const TensorSpec spec = *TensorOfSize(tensor, op.samples);
    return LayoutOf(op, transfer, tensor).Tiles(MeshOf(), spec.shape);
  }
  // Its tiles are in `memory`, one more for each slot.
  PipelineTensor TensorOf(const PipelineOp& op, TransferIndex transfer,
                          const PipelineDescription::Tensor& tensor,
                          std::deque<std::vector<float>>& memory) const {
    const TensorSpec spec = *TensorOfSize(tensor, op.samples);
    const PipelineDescription::Edge& edge = EdgeOf(transfer);
    PipelineTensor given{.name = spec.name,
                         .other_stage = edge.from == op.op.stage ? edge.to : edge.from,
                         .type = spec.type,
                         .shape = {spec.shape.lengths().begin(), spec.shape.lengths().end()}};
    const std::vector<Tile> tiles = TilesOf(op, transfer, tensor);
    for (size_t slot = 0; slot < tiles.size(); ++slot) {
      std::vector<float>& bytes = memory.emplace_back(Volume(tiles[slot]), kUnwritten);
      given.tiles.push_back(
          {.device = MeshOf().devices()[slot], .bytes = std::as_writable_bytes(std::span(bytes))});
    }
    return given;
  }

  PlannedLoops& all_;
  const OpTable& table_;
  const RankIndex rank_;
  std::vector<Op> ops_;
  int64_t iteration_;
  size_t next_ = 0;  // of ops_
  std::deque<PipelineStep> first_steps_;
  bool is_asked_ = false;  // whether it goes on
  std::vector<Given> step_;
};

PlannedLoops::PlannedLoops(std::shared_ptr<const PlannedPipeline> planned, Options options)
    : planned_(std::move(planned)), options_(std::move(options)) {}

std::unique_ptr<PipelineLoop> PlannedLoops::LoopOf(RankIndex rank) {
  return std::make_unique<Loop>(*this, rank);
}

std::deque<PipelineStep> PlannedLoops::FirstSteps() const {
  std::deque<PipelineStep> steps;
  if (options_.complete_iteration.has_value()) {
    steps.push_back(
        {.kind = PipelineStep::Kind::kComplete, .iteration = *options_.complete_iteration});
  }
  if (!options_.lost_ranks.empty()) {
    steps.push_back({.kind = PipelineStep::Kind::kStateLost,
                     .iteration = options_.complete_iteration.value_or(-1),
                     .lost_ranks = options_.lost_ranks});
  }
  return steps;
}

absl::Status PlannedLoops::WaitForMessage(const MessageKey& key, Message& message) {
  MutexLock lock(mutex_);
  while (why_.ok() && !messages_.contains(key)) changed_.Wait(mutex_);
  if (!why_.ok()) return why_;
  message = std::move(messages_.extract(key).mapped());
  return absl::OkStatus();
}

absl::Status PlannedLoops::WaitForBarrier(RankIndex rank, int64_t iteration) {
  const int64_t all = (iteration - options_.first_iteration + 1) * planned_->ops->size();
  MutexLock lock(mutex_);
  while (why_.ok() && ops_done_ < all) changed_.Wait(mutex_);
  if (ops_done_ == all && options_.told.contains(rank)) return absl::OkStatus();
  return ops_done_ < all || options_.ops_max == all ? why_ : absl::OkStatus();
}

void PlannedLoops::OnDone(std::vector<std::pair<MessageKey, Message>> messages) {
  MutexLock lock(mutex_);
  for (auto& [key, message] : messages) {
    CHECK(messages_.emplace(key, std::move(message)).second) << "transfer " << key.first;
  }
  if (++ops_done_ == options_.ops_max && why_.ok()) why_ = absl::AbortedError("cut short");
  changed_.SignalAll();
}

absl::Status PlannedLoops::why() {
  MutexLock lock(mutex_);
  return why_;
}

void PlannedLoops::Cut(const absl::Status& why) {
  MutexLock lock(mutex_);
  if (why_.ok()) why_ = why;
  changed_.SignalAll();
}

}  // namespace crossmesh::training
