#include "planner/parallelism/programs/part_prices.h"

#include "common/base/status_macros.h"
#include "planner/parallelism/block_work.h"
#include "planner/parallelism/collective_walk.h"
#include "planner/parallelism/gather_ahead.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {
namespace {

constexpr int kPartMatrices = 2;

// The first matrix of a part in a block; nothing of logits.
std::optional<int> FirstMatrix(ModelPart part) {
  switch (part) {
    case ModelPart::kAttention:
      return 0;
    case ModelPart::kMlp:
      return kPartMatrices;
    case ModelPart::kLogits:
      return std::nullopt;
  }
  return std::nullopt;
}

// Whose collective it is; nothing of all parts together.
std::optional<ModelPart> PartOf(const StepModel& step, const CollectiveUse& use) {
  if (use.object == "attention") return ModelPart::kAttention;
  if (use.object == "logits") return ModelPart::kLogits;
  for (int i = 0; i < kBlockMatrices; ++i) {
    if (step.blocks()[i].name != use.object) continue;
    return i < kPartMatrices ? ModelPart::kAttention : ModelPart::kMlp;
  }
  return std::nullopt;
}

class Pricer {
 public:
  Pricer(const StepModel& step, LayerGridsPrice& price)
      : step_(step), training_(step.training()), price_(price) {
    for (const GridShape& shape : price.shapes) {
      works_.push_back(WorkOfBlock(step.model(), training_, step.device(), shape));
      price.of_grid.emplace_back();
    }
  }

  absl::Status Price() {
    for (size_t grid = 0; grid < price_.shapes.size(); ++grid) {
      AddParts(grid);
      AddCopies(grid);
      AddVectors(grid);
    }
    AddForwardGathers();
    for (size_t place = 1; place < price_.parts.places.size(); ++place) {
      if (!price_.parts.IsJoint(place)) continue;
      RETURN_IF_ERROR(AddJoint(place));
      MoveGather(place);
    }
    AddLogitsAndOptimizer();
    Sum();
    AddMemory();
    return absl::OkStatus();
  }

 private:
  const GridShape& ShapeAt(size_t place) const {
    return price_.shapes[price_.parts.grid_of[place]];
  }
  double microbatches() const { return static_cast<double>(price_.shapes.front().microbatches); }

  // Layers whose attention, or MLP, is on the grid.
  double Count(size_t grid, ModelPart part) const {
    double count = 0;
    for (size_t place = 0; place < price_.parts.places.size(); ++place) {
      const bool is_on = price_.parts.grid_of[place] == static_cast<int32_t>(grid);
      if (is_on && price_.parts.places[place].part == part) ++count;
    }
    return count;
  }

  // Of one microbatch.
  double SecondsOfPart(size_t grid, ModelPart part) const {
    const BlockWork& work = works_[grid];
    const int first = *FirstMatrix(part);
    double seconds = 3 * work.elementwise * kPartMatrices / kBlockMatrices;
    if (part == ModelPart::kAttention) seconds += 3 * work.attention;
    for (int i = first; i < first + kPartMatrices; ++i) {
      seconds += work.product[i].forward + work.product[i].backward();
    }
    return seconds;
  }

  void AddParts(size_t grid) {
    StepPrice& of = price_.of_grid[grid];
    for (const ModelPart part : {ModelPart::kAttention, ModelPart::kMlp}) {
      of.compute_seconds += microbatches() * Count(grid, part) * SecondsOfPart(grid, part);
    }
    const auto layers = static_cast<double>(step_.model().layers);
    for (const CollectiveUse& use : step_.Collectives(price_.shapes[grid])) {
      const std::optional<ModelPart> part = PartOf(step_, use);
      const bool is_gather = use.pass == "forward" && use.what == "weights";
      if (!part.has_value() || (is_gather && *part != ModelPart::kLogits)) continue;
      const double of_all = *part == ModelPart::kLogits ? 1 : layers;
      Add(grid, use, use.count * Count(grid, *part) / of_all);
    }
  }

  void Add(size_t grid, const CollectiveUse& use, double count) {
    StepPrice& of = price_.of_grid[grid];
    of.exposed_seconds[use.axis] += count * (use.seconds - use.hidden_seconds);
    of.hidden_seconds[use.axis] += count * use.hidden_seconds;
    of.wire_bytes[use.axis] +=
        count * WireBytes(use.op, price_.shapes[grid].grid[use.axis], use.message_bytes);
  }

  // Norms, biases and embeddings, as they lie on the grid.
  void AddVectors(size_t grid) {
    const Transformer& model = step_.model();
    if (model.vocabulary == 0) return;
    const auto [attention, mlp] = VectorsOfHalves(model);
    const double attentions = Count(grid, ModelPart::kAttention);
    const double mlps = Count(grid, ModelPart::kMlp);
    const auto hidden = static_cast<double>(model.hidden);
    double of_c = attentions * static_cast<double>(attention.of_c) +
                  mlps * static_cast<double>(mlp.of_c) +
                  Count(grid, ModelPart::kLogits) * 2 * hidden;
    const double of_r =
        attentions * static_cast<double>(attention.of_r) + mlps * static_cast<double>(mlp.of_r);
    if (price_.parts.grid_of.front() == static_cast<int32_t>(grid)) {
      of_c += static_cast<double>(model.vocabulary + training_.sequence) * hidden;
    }
    const CollectiveWalk walk(step_, price_.shapes[grid], works_[grid]);
    const auto add = [&](const CollectiveUse& use) { Add(grid, use, use.count); };
    walk.SumVectors(GridAxis::kC, of_c, add);
    walk.SumVectors(GridAxis::kR, of_r, add);
  }

  // Of the grid's parts, and of one matrix of the vocabulary where logits are.
  double Parameters(size_t grid) const {
    const GridShape& shape = price_.shapes[grid];
    double elements = 0;
    for (int i = 0; i < kBlockMatrices; ++i) {
      const ModelPart part = i < kPartMatrices ? ModelPart::kAttention : ModelPart::kMlp;
      elements += Count(grid, part) * shape.matrices[i].elements();
    }
    return elements / static_cast<double>(shape.grid.z()) +
           Count(grid, ModelPart::kLogits) * Embedding(shape);
  }
  double Embedding(const GridShape& shape) const {
    return static_cast<double>(step_.model().vocabulary * step_.model().hidden) /
           static_cast<double>(shape.grid.tensor_degree());
  }

  void AddCopies(size_t grid) {
    const Grid& of = price_.shapes[grid].grid;
    if (of.data() == 1) return;
    const double message = Parameters(grid) * training_.data_gradient_bytes;
    price_.of_grid[grid].exposed_seconds[GridAxis::kData] +=
        step_.RateOf(of, GridAxis::kData).Seconds(CollectiveOp::kAllReduce, message);
    price_.of_grid[grid].wire_bytes[GridAxis::kData] +=
        WireBytes(CollectiveOp::kAllReduce, of.data(), message);
  }

  double GatherSeconds(size_t place, int matrix) const {
    const GridShape& shape = ShapeAt(place);
    if (shape.grid.z() == 1) return 0;
    return step_.RateOf(shape.grid, GridAxis::kZ)
        .Seconds(CollectiveOp::kAllGather,
                 shape.matrices[matrix].elements() * training_.element_bytes);
  }

  // Of a matrix's backward segment, what gathers may run beside.
  double FreeBackward(size_t place, int matrix) const {
    const BlockWork& work = works_[price_.parts.grid_of[place]];
    const LayerProducts& product = work.product[matrix];
    if (!training_.overlaps.input_gradients) return work.BackwardSegment(matrix);
    const bool gathers_input =
        training_.activations == ActivationForm::kScattered && !training_.keep_gathered;
    return work.BackwardSegment(matrix) - product.weight_gradient -
           (gathers_input ? product.input_gradient : 0);
  }

  // Weights are gathered ahead from part to part, whatever their grids.
  void AddForwardGathers() {
    const bool ahead = training_.overlaps.weight_gathers;
    GatherAhead gathers;
    double behind = 0;
    for (size_t place = 0; place < price_.parts.places.size(); ++place) {
      const std::optional<int> first = FirstMatrix(price_.parts.places[place].part);
      if (!first.has_value()) continue;  // logits have theirs
      for (int i = *first; i < *first + kPartMatrices; ++i) {
        const double seconds = GatherSeconds(place, i);
        AddGather(place, i, seconds, ahead ? gathers.Hidden(seconds, behind) : 0);
        const size_t grid = price_.parts.grid_of[place];
        behind = CollectiveWalk(step_, price_.shapes[grid], works_[grid]).FreeForward(i);
      }
    }
  }

  void AddGather(size_t place, int matrix, double seconds, double hidden) {
    if (seconds == 0) return;
    Add(price_.parts.grid_of[place],
        {.op = CollectiveOp::kAllGather,
         .axis = GridAxis::kZ,
         .message_bytes = ShapeAt(place).matrices[matrix].elements() * training_.element_bytes,
         .seconds = seconds,
         .hidden_seconds = hidden},
        microbatches());
  }

  void Expose(size_t place, double seconds, double count) {
    StepPrice& of = price_.of_grid[price_.parts.grid_of[place]];
    of.exposed_seconds[GridAxis::kZ] += count * seconds;
    of.hidden_seconds[GridAxis::kZ] -= count * seconds;
  }

  // What hides a gather of the backward pass is computed on the grid on the other side of the
  // joint.
  void MoveGather(size_t place) {
    const std::optional<int> first = FirstMatrix(price_.parts.places[place].part);
    if (!first.has_value() || !training_.overlaps.backward_gathers || IsCached(place - 1)) return;
    const int before = (*first + kBlockMatrices - 1) % kBlockMatrices;
    const double seconds = GatherSeconds(place - 1, before);
    Expose(place - 1,
           std::min(seconds, FreeBackward(place - 1, *first)) -
               std::min(seconds, FreeBackward(place, *first)),
           microbatches());
  }

  bool IsCached(size_t place) const {
    return step_.model().layers - price_.parts.places[place].layer <= training_.cached_layers;
  }

  absl::Status AddJoint(size_t place) {
    JointPrice joint{.place = price_.parts.places[place],
                     .from = ShapeAt(place - 1).grid,
                     .to = ShapeAt(place).grid,
                     .messages = price_.shapes.front().microbatches};
    const auto known = std::ranges::find_if(price_.joints, [&joint](const JointPrice& other) {
      return other.from == joint.from && other.to == joint.to;
    });
    if (known != price_.joints.end()) {
      joint.forward = known->forward;
      joint.backward = known->backward;
    } else {
      const JointRequest request{.rows = training_.batch * training_.sequence / joint.messages,
                                 .hidden = step_.model().hidden,
                                 .item_bytes = static_cast<int64_t>(training_.element_bytes),
                                 .scattered = training_.activations == ActivationForm::kScattered,
                                 .grids = price_.parts.grids};
      ASSIGN_OR_RETURN(joint.forward, CostOfJoint(request, joint.from, joint.to, step_.rates()));
      ASSIGN_OR_RETURN(joint.backward, CostOfJoint(request, joint.to, joint.from, step_.rates()));
    }
    price_.joints.push_back(std::move(joint));
    return absl::OkStatus();
  }

  void AddLogitsAndOptimizer() {
    const size_t last = price_.parts.grid_of.back();
    const LayerProducts logits = LogitsProducts(step_.model(), step_.device(), price_.shapes[last]);
    price_.of_grid[last].logits_seconds = microbatches() * (logits.forward + logits.backward());
    for (size_t grid = 0; grid < price_.shapes.size(); ++grid) {
      price_.of_grid[grid].optimizer_seconds = Parameters(grid) *
                                               StepModel::kOptimizerTrafficBytes /
                                               step_.device().memory_bytes_per_second;
    }
  }

  void Sum() {
    for (StepPrice& of : price_.of_grid) {
      double hidden = 0;
      for (const double seconds : of.hidden_seconds.values) hidden += seconds;
      of.slowdown_seconds = (step_.device().overlap_slowdown - 1) * hidden;
      StepPrice& all = price_.step;
      all.compute_seconds += of.compute_seconds;
      all.slowdown_seconds += of.slowdown_seconds;
      all.logits_seconds += of.logits_seconds;
      all.optimizer_seconds += of.optimizer_seconds;
      for (const GridAxis axis : kGridAxes) {
        all.exposed_seconds[axis] += of.exposed_seconds[axis];
        all.hidden_seconds[axis] += of.hidden_seconds[axis];
        all.wire_bytes[axis] += of.wire_bytes[axis];
      }
    }
  }

  void AddMemory() {
    std::vector<PartsOfShape> parts;
    for (size_t grid = 0; grid < price_.shapes.size(); ++grid) {
      parts.push_back({.shape = price_.shapes[grid],
                       .attention = Count(grid, ModelPart::kAttention),
                       .mlp = Count(grid, ModelPart::kMlp),
                       .has_logits = Count(grid, ModelPart::kLogits) > 0});
      for (size_t place = 0; place < price_.parts.places.size(); ++place) {
        const bool is_mlp = price_.parts.places[place].part == ModelPart::kMlp;
        if (price_.parts.grid_of[place] != static_cast<int32_t>(grid) ||
            price_.parts.places[place].part == ModelPart::kLogits || !IsCached(place)) {
          continue;
        }
        (is_mlp ? parts.back().cached_mlp : parts.back().cached_attention) += 1;
      }
    }
    price_.memory = MemoryOf(step_.model(), training_, parts);
    AddJointBuffers();
  }

  // Of each way a transfer forward and one back, with both its ends.
  void AddJointBuffers() {
    for (size_t joint = 0; joint < price_.joints.size(); ++joint) {
      const auto& [place, from, to, forward, backward, messages] = price_.joints[joint];
      const bool is_first =
          std::none_of(price_.joints.begin(), price_.joints.begin() + joint,
                       [&](const JointPrice& o) { return o.from == from && o.to == to; });
      if (!is_first || forward.steps.empty()) continue;
      price_.joint_bytes += 2 * (StreamBytes(from) + StreamBytes(to));
    }
  }
  double StreamBytes(const Grid& grid) const {
    const double all =
        static_cast<double>(training_.batch * training_.sequence * step_.model().hidden) /
        microbatches();
    const double parts =
        static_cast<double>(grid.sample_groups() * grid.c()) *
        (training_.activations == ActivationForm::kScattered ? static_cast<double>(grid.r()) : 1);
    return all / parts * training_.element_bytes;
  }

  const StepModel& step_;
  const Training& training_;
  LayerGridsPrice& price_;
  std::vector<BlockWork> works_;  // by grid
};

}  // namespace

absl::Status PriceParts(const StepModel& step, LayerGridsPrice& price) {
  return Pricer(step, price).Price();
}

}  // namespace crossmesh
