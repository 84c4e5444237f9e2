#include "planner/parallelism/programs/grid_program.h"

#include "common/base/check.h"
#include "common/base/error_place.h"
#include "common/base/status_macros.h"
#include "common/mesh/shape.h"
#include "planner/parallelism/block_work.h"
#include "planner/parallelism/grid_rules.h"
#include "planner/parallelism/grid_shape.h"
#include "planner/parallelism/programs/program_writer.h"
#include "planner/parallelism/programs/stage_writer.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

template <typename... Parts>
absl::Status Refused(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("program of a grid: ", parts...));
}

// The axes that programs know, the nearest neighbours last.
constexpr std::array<GridAxis, 4> kMeshAxes = {GridAxis::kData, GridAxis::kZ, GridAxis::kR,
                                               GridAxis::kC};

absl::Status CheckAxes(const Grid& grid) {
  const int64_t devices = grid.data() * grid.z() * grid.r() * grid.c();
  if (devices == grid.devices()) return absl::OkStatus();
  return Refused("expected a grid of c, r, z and data for each stage, found ", ToString(grid));
}

absl::Status CheckTraining(const Transformer& model, const Training& training) {
  if (model.experts > 0)
    return Refused("expected a dense model, found ", model.experts, " experts");
  if (model.vocabulary == 0) return Refused("expected a model with a vocabulary, found none");
  if (training.order != kGridOrder) {
    return Refused("expected axes in the order ", ToString(kGridOrder), ", found ",
                   ToString(training.order));
  }
  if (training.zero != 0) return Refused("expected no ZeRO, found stage ", training.zero);
  if (training.recompute != Recompute::kNone) {
    return Refused("expected nothing to be computed again, found ",
                   RecomputeName(training.recompute));
  }
  if (training.activations == ActivationForm::kScattered && !training.keep_gathered) {
    return Refused("expected gathered inputs to be kept, found scattered ones that are not");
  }
  return absl::OkStatus();
}

// Sequences of a microbatch on one device of the stage.
absl::StatusOr<int64_t> MicrobatchOf(const GridProgramRequest& request, const Grid& grid) {
  const int64_t parts = grid.sample_groups() * request.microbatches;
  if (request.training.batch % parts != 0) {
    return Refused("expected a batch in ", request.microbatches, " microbatches of ",
                   grid.sample_groups(), " groups, found ", request.training.batch, " sequences");
  }
  const int64_t microbatch = request.training.batch / parts;
  if (request.training.overlaps.split_batch && microbatch % 2 != 0) {
    return Refused("expected an even microbatch to be cut in two, found ", microbatch,
                   " sequences of a device");
  }
  return microbatch;
}

// What is transferred is no larger than tensors may be.
absl::Status CheckSizes(const GridProgramRequest& request, const GridStage& stage) {
  const Transformer& model = request.model;
  double width = static_cast<double>(model.vocabulary);
  double matrix = width * static_cast<double>(model.hidden);
  for (const BlockMatrix& of_block : MatricesOf(model)) {
    const auto k = static_cast<double>(of_block.k);
    const auto n = static_cast<double>(of_block.n);
    width = std::max({width, k, n});
    matrix = std::max(matrix, k * n);
  }
  const auto sequence = static_cast<double>(request.training.sequence);
  const double rows = static_cast<double>(request.training.batch) * sequence;
  // Each layer has less than 32 vectors as wide as the residual stream.
  const double vectors =
      (static_cast<double>(model.vocabulary) + sequence + 32 * static_cast<double>(stage.layers)) *
      static_cast<double>(model.hidden);
  const struct {
    absl::string_view name;
    double elements;
    int64_t most;
  } sizes[] = {{"rows of a batch", rows, Shape::kDimensionMax},
               {"activations of a batch", rows * width, Shape::kElementsMax},
               {"elements of a matrix", matrix, Shape::kDimensionMax},
               {"gradients of a matrix of all copies",
                matrix * static_cast<double>(stage.grid.data()), Shape::kElementsMax},
               {"elements of norms, biases and embeddings", vectors, Shape::kDimensionMax}};
  for (const auto& [name, elements, most] : sizes) {
    if (elements <= static_cast<double>(most)) continue;
    return Refused("expected at most ", most, " ", name, ", found ", elements);
  }
  return absl::OkStatus();
}

absl::Status CheckStage(const GridProgramRequest& request, const GridStage& stage) {
  const Grid& grid = stage.grid;
  RETURN_IF_ERROR(CheckAxes(grid));
  if (stage.layers < 1 || stage.mesh == nullptr || stage.mesh->slots() != grid.devices()) {
    return Refused("expected layers, and a mesh of ", grid.devices(), " devices, found ",
                   stage.layers, " and ", stage.mesh == nullptr ? 0 : stage.mesh->slots());
  }
  for (size_t axis = 0; axis < kMeshAxes.size(); ++axis) {
    const Axis expected = {.name = std::string(GridAxisName(kMeshAxes[axis])),
                           .size = grid[kMeshAxes[axis]]};
    if (stage.mesh->rank() != std::ssize(kMeshAxes) || stage.mesh->axes()[axis] != expected) {
      return Refused("expected a mesh of grid ", ToString(grid), ", found ",
                     AxesToString(stage.mesh->axes()));
    }
  }
  RETURN_IF_ERROR(CheckSizes(request, stage));
  ASSIGN_OR_RETURN(const int64_t microbatch, MicrobatchOf(request, grid));
  Training training = request.training;
  training.microbatch =
      request.training.overlaps.split_batch ? microbatch / 2 : microbatch;  // of a message
  RETURN_IF_ERROR(CheckGrid(request.model, training, grid));
  const int64_t block = request.model.vocabulary * request.model.hidden / (grid.c() * grid.r());
  if (request.model.vocabulary % grid.r() != 0 || block % grid.z() != 0) {
    return Refused("expected a vocabulary that r cuts, and z what is left of its matrix, found ",
                   request.model.vocabulary, " and ", ToString(grid));
  }
  return absl::OkStatus();
}

// Forward and backward of one microbatch after the other.
Schedule OneByOne(int32_t microbatches) {
  Schedule schedule{.stages = 1, .microbatches = microbatches, .ranks = {{}}};
  for (MicrobatchIndex microbatch = 0; microbatch < microbatches; ++microbatch) {
    schedule.ranks[0].push_back({.kind = OpKind::kForward, .microbatch = microbatch});
    schedule.ranks[0].push_back({.kind = OpKind::kBackward, .microbatch = microbatch});
  }
  return schedule;
}

// Each microbatch goes forward through the stage, and then back.
absl::Status CheckOps(const std::vector<Op>& ops, StageIndex stage, int32_t microbatches) {
  std::vector<int> passes(microbatches);
  for (const Op& op : ops) {
    const bool is_forward = op.kind == OpKind::kForward;
    const bool is_whole = is_forward || op.kind == OpKind::kBackward;
    if (is_whole && !op.is_fused && op.stage == stage && op.microbatch >= 0 &&
        op.microbatch < microbatches && passes[op.microbatch]++ == (is_forward ? 0 : 1)) {
      continue;
    }
    return Refused("expected a forward and then a backward op of stage ", stage, " for each of ",
                   microbatches, " microbatches, found ", ToString(op));
  }
  if (std::ssize(ops) == int64_t{2} * microbatches) return absl::OkStatus();
  return Refused("expected a forward and a backward op of stage ", stage, " for each of ",
                 microbatches, " microbatches, found ", ops.size(), " ops");
}

absl::Status CheckSchedule(const Schedule& schedule, size_t stages, int32_t microbatches) {
  if (schedule.ranks.size() != stages || schedule.microbatches != microbatches) {
    return Refused("expected a schedule of ", stages, " ranks and ", microbatches,
                   " microbatches, found ", schedule.ranks.size(), " and ", schedule.microbatches);
  }
  for (size_t rank = 0; rank < stages; ++rank) {
    RETURN_IF_ERROR(CheckOps(schedule.ranks[rank], static_cast<StageIndex>(rank), microbatches));
  }
  return absl::OkStatus();
}

class Maker {
 public:
  Maker(const GridProgramRequest& request, Schedule schedule)
      : request_(request), schedule_(std::move(schedule)), program_(Ranks(request)) {}

  LayerProgram Make() && {
    int64_t first_layer = 0;
    for (size_t stage = 0; stage < request_.stages.size(); ++stage) {
      StageWriter writer(SettingsOf(stage, first_layer), program_);
      writer.Begin();
      for (const Op& op : schedule_.ranks[stage]) {
        op.kind == OpKind::kForward ? writer.Forward(op.microbatch)
                                    : writer.Backward(op.microbatch);
      }
      writer.Finish();
      first_layer += request_.stages[stage].layers;
    }
    return std::move(program_).Finish();
  }

 private:
  static std::vector<LayerProgram::Rank> Ranks(const GridProgramRequest& request) {
    std::vector<LayerProgram::Rank> ranks;
    for (const GridStage& stage : request.stages) ranks.push_back({.mesh = stage.mesh});
    return ranks;
  }

  // Of a microbatch, or of half of it.
  int64_t Rows() const {
    return request_.training.batch * request_.training.sequence / request_.microbatches /
           (request_.training.overlaps.split_batch ? 2 : 1);
  }

  StageSizes SizesOf(size_t stage) const {
    const Training& training = request_.training;
    return {.prefix = request_.stages.size() == 1 ? "" : absl::StrCat("stage", stage, "."),
            .grid = request_.stages[stage].grid,
            .scattered = training.activations == ActivationForm::kScattered,
            .diagonal = training.vectors == VectorForm::kDiagonal,
            .rows = Rows(),
            .hidden = request_.model.hidden,
            .type = request_.type,
            .halves = training.overlaps.split_batch ? 2 : 1,
            .scatter_buffers = training.overlaps.weight_gradients ? request_.pending_scatters : 1};
  }

  // Activations between two neighbouring stages, or their gradients on the way back.
  GridTransfers::Transfer Between(size_t from, size_t to) const {
    if (std::max(from, to) >= request_.stages.size()) return std::nullopt;
    return GridTransfers(SizesOf(from))
        .Leaving(from < to ? "activations" : "gradients", GridTransfers(SizesOf(to)));
  }

  StageSettings SettingsOf(size_t stage, int64_t first_layer) const {
    const Grid& grid = request_.stages[stage].grid;
    const absl::StatusOr<int64_t> microbatch = MicrobatchOf(request_, grid);
    CHECK_OK(microbatch.status());
    const GridShape shape = ShapeOf(request_.model, request_.training, grid, *microbatch);
    // Before the first stage there is none: an index that no stage has.
    const size_t before = stage == 0 ? request_.stages.size() : stage - 1;
    return {.rank = static_cast<RankIndex>(stage),
            .is_first = stage == 0,
            .is_last = stage + 1 == request_.stages.size(),
            .first_layer = first_layer,
            .layers = request_.stages[stage].layers,
            .model = request_.model,
            .training = request_.training,
            .sizes = SizesOf(stage),
            .work = WorkOfBlock(request_.model, request_.training, request_.device, shape),
            .logits = LogitsProducts(request_.model, request_.device, shape),
            .activations_in = Between(before, stage),
            .activations_out = Between(stage, stage + 1),
            .gradients_in = Between(stage + 1, stage),
            .gradients_out = Between(stage, before)};
  }

  const GridProgramRequest& request_;
  const Schedule schedule_;
  ProgramWriter program_;
};

}  // namespace

absl::StatusOr<Mesh> MeshOfGrid(const Grid& grid, std::span<const DeviceId> devices) {
  RETURN_IF_ERROR(CheckAxes(grid));
  std::vector<Axis> axes;
  for (const GridAxis axis : kMeshAxes) {
    axes.push_back({.name = std::string(GridAxisName(axis)), .size = grid[axis]});
  }
  return Mesh::Create(std::move(axes), {devices.begin(), devices.end()});
}

absl::StatusOr<std::vector<GridStage>> StagesOfGrid(const Grid& grid,
                                                    std::span<const DeviceId> devices,
                                                    int64_t layers) {
  const int64_t stages = grid.pipeline();
  if (std::ssize(devices) != grid.devices() || layers % stages != 0) {
    return Refused("expected ", grid.devices(), " devices, and layers that ", stages,
                   " stages divide, found ", devices.size(), " and ", layers);
  }
  Grid of_stage = grid;
  of_stage[GridAxis::kPipeline] = 1;
  std::vector<GridStage> made;
  for (int64_t stage = 0; stage < stages; ++stage) {
    std::vector<DeviceId> of;
    // Only copies are outside of stages.
    const int64_t inner = grid.tensor_degree();
    for (int64_t copy = 0; copy < grid.data(); ++copy) {
      const auto first = devices.begin() + (copy * stages + stage) * inner;
      of.insert(of.end(), first, first + inner);
    }
    ASSIGN_OR_RETURN(Mesh mesh, MeshOfGrid(of_stage, of));
    made.push_back({.grid = of_stage,
                    .mesh = std::make_shared<const Mesh>(std::move(mesh)),
                    .layers = layers / stages});
  }
  return made;
}

absl::StatusOr<LayerProgram> MakeGridProgram(const GridProgramRequest& request) {
  RETURN_IF_ERROR(Validate(request.model));
  RETURN_IF_ERROR(Validate(request.training));
  RETURN_IF_ERROR(CheckTraining(request.model, request.training));
  if (request.microbatches < 1 || request.pending_scatters < 1) {
    return Refused("expected microbatches and scatters that may wait, found ", request.microbatches,
                   " and ", request.pending_scatters);
  }
  int64_t layers = 0;
  for (size_t stage = 0; stage < request.stages.size(); ++stage) {
    RETURN_IF_ERROR(At(absl::StrCat("stage ", stage), CheckStage(request, request.stages[stage])));
    layers += request.stages[stage].layers;
  }
  if (layers != request.model.layers) {
    return Refused("expected stages of the model's ", request.model.layers, " layers, found ",
                   layers);
  }
  Schedule schedule = request.schedule;
  if (schedule.ranks.empty() && request.stages.size() == 1)
    schedule = OneByOne(request.microbatches);
  RETURN_IF_ERROR(CheckSchedule(schedule, request.stages.size(), request.microbatches));
  LayerProgram program = Maker(request, std::move(schedule)).Make();
  RETURN_IF_ERROR(Validate(program));
  return program;
}

}  // namespace crossmesh
