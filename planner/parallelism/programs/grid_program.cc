#include "planner/parallelism/programs/grid_program.h"

#include "common/base/check.h"
#include "common/base/count_text.h"
#include "common/base/error_place.h"
#include "common/base/status_macros.h"
#include "common/mesh/shape.h"
#include "planner/parallelism/block_work.h"
#include "planner/parallelism/grid_rules.h"
#include "planner/parallelism/grid_shape.h"
#include "planner/parallelism/programs/program_writer.h"
#include "planner/parallelism/programs/stage_schedule.h"
#include "planner/parallelism/programs/stage_writer.h"

#include <algorithm>
#include <iterator>
#include <map>
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
    return Refused("expected a batch in ",
                   CountText(request.microbatches, "microbatch", "microbatches"), " of ",
                   CountText(grid.sample_groups(), "group", "groups"), ", found ",
                   CountText(request.training.batch, "sequence", "sequences"));
  }
  const int64_t microbatch = request.training.batch / parts;
  if (request.training.overlaps.split_batch && microbatch % 2 != 0) {
    return Refused("expected an even microbatch to be cut in two, found ",
                   CountText(microbatch, "sequence", "sequences"), " of a device");
  }
  return microbatch;
}

// What is transferred is no larger than tensors may be.
absl::Status CheckSizes(const GridProgramRequest& request, const GridStage& stage,
                        const Grid& grid) {
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
               {"gradients of a matrix of all copies", matrix * static_cast<double>(grid.data()),
                Shape::kElementsMax},
               {"elements of norms, biases and embeddings", vectors, Shape::kDimensionMax}};
  for (const auto& [name, elements, most] : sizes) {
    if (elements <= static_cast<double>(most)) continue;
    return Refused("expected at most ", most, " ", name, ", found ", elements);
  }
  return absl::OkStatus();
}

absl::Status CheckGridOfStage(const GridProgramRequest& request, const GridStage& stage,
                              const Grid& grid) {
  RETURN_IF_ERROR(CheckSizes(request, stage, grid));
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

absl::Status CheckStage(const GridProgramRequest& request, size_t place) {
  const GridStage& stage = request.stages[place];
  if (stage.layers < 1 || stage.mesh == nullptr || stage.mesh->slots() != stage.grid.devices()) {
    return Refused("expected layers, and a mesh of ", stage.grid.devices(), " devices, found ",
                   stage.layers, " and ", stage.mesh == nullptr ? 0 : stage.mesh->slots());
  }
  ASSIGN_OR_RETURN(const PartsOnGrids parts, PartsOfStage(request.stages, place));
  if (parts.grids.size() > 1 && request.training.vectors == VectorForm::kDiagonal) {
    return Refused("expected one grid in a stage beside vectors on the diagonal, found ",
                   parts.grids.size());
  }
  ASSIGN_OR_RETURN(const Mesh expected, MeshOfGrids(parts.grids, stage.mesh->devices()));
  if (*stage.mesh != expected) {
    return Refused("expected a mesh ", AxesToString(expected.axes()), ", of grid ",
                   ToString(LayerGrids{stage.grid, stage.others}), ", found ",
                   AxesToString(stage.mesh->axes()));
  }
  for (const Grid& grid : parts.grids) {
    const absl::Status status = CheckGridOfStage(request, stage, grid);
    RETURN_IF_ERROR(parts.grids.size() == 1 ? status
                                            : At(absl::StrCat("grid ", ToString(grid)), status));
  }
  return absl::OkStatus();
}

// A rank has one mesh, also for several stages.
absl::Status CheckMeshes(const std::vector<GridStage>& stages,
                         const std::vector<std::vector<StageIndex>>& stages_of) {
  for (const std::vector<StageIndex>& of_rank : stages_of) {
    const Mesh& first = *stages[of_rank.front()].mesh;
    for (const StageIndex stage : of_rank) {
      if (*stages[stage].mesh == first) continue;
      return Refused("expected stages of a rank on one mesh, found ", ToString(first), " of stage ",
                     of_rank.front(), " and ", ToString(*stages[stage].mesh), " of stage ", stage);
    }
  }
  return absl::OkStatus();
}

class Maker {
 public:
  Maker(const GridProgramRequest& request, Schedule schedule)
      : request_(request),
        schedule_(std::move(schedule)),
        stages_of_(StagesOfRanks(schedule_, request.stages.size())),
        program_(Ranks()) {}

  LayerProgram Make() && {
    for (size_t rank = 0; rank < stages_of_.size(); ++rank) {
      std::map<StageIndex, StageWriter> writers;
      for (const StageIndex stage : stages_of_[rank]) {
        writers.try_emplace(stage, SettingsOf(rank, stage), program_).first->second.Begin();
      }
      for (const Op& op : schedule_.ranks[rank]) Write(op, writers.at(op.stage));
      for (auto& [stage, writer] : writers) writer.Finish();
    }
    return std::move(program_).Finish();
  }

 private:
  std::vector<LayerProgram::Rank> Ranks() const {
    std::vector<LayerProgram::Rank> ranks;
    for (const std::vector<StageIndex>& stages : stages_of_) {
      ranks.push_back({.mesh = request_.stages[stages.front()].mesh});
    }
    return ranks;
  }

  static void Write(const Op& op, StageWriter& writer) {
    switch (op.kind) {
      case OpKind::kForward:
        return writer.Forward(op.microbatch);
      case OpKind::kBackward:
        return writer.Backward(op.microbatch);
      case OpKind::kInputGradient:
        return writer.BackwardInputs(op.microbatch);
      case OpKind::kWeightGradient:
        return writer.BackwardWeights(op.microbatch);
    }
  }

  PartsOnGrids PartsOf(size_t stage) const {
    absl::StatusOr<PartsOnGrids> parts = PartsOfStage(request_.stages, stage);
    CHECK_OK(parts.status());
    return *std::move(parts);
  }

  // Of a microbatch, or of half of it.
  int64_t Rows() const {
    return request_.training.batch * request_.training.sequence / request_.microbatches /
           (request_.training.overlaps.split_batch ? 2 : 1);
  }

  // Of one of the stage's grids.
  StageSizes SizesOf(size_t stage, const PartsOnGrids& parts, size_t grid) const {
    const Training& training = request_.training;
    return {.stage = request_.stages.size() == 1 ? "" : absl::StrCat("stage", stage, "."),
            .part = parts.grids.size() == 1 ? "" : absl::StrCat("grid", grid, "."),
            .grid = parts.grids[grid],
            .axes = AxesOnMesh(parts.grids[grid], request_.stages[stage].mesh->axes()),
            .scattered = training.activations == ActivationForm::kScattered,
            .diagonal = training.vectors == VectorForm::kDiagonal,
            .rows = Rows(),
            .hidden = request_.model.hidden,
            .type = request_.type,
            .halves = training.overlaps.split_batch ? 2 : 1,
            .scatter_buffers = training.overlaps.weight_gradients
                                   ? static_cast<int32_t>(training.pending_scatters)
                                   : 1};
  }

  // Of the stage's last part, or of its first one.
  GridTransfers End(size_t stage, bool is_last) const {
    const PartsOnGrids parts = PartsOf(stage);
    return GridTransfers(
        SizesOf(stage, parts, is_last ? parts.grid_of.back() : parts.grid_of.front()));
  }

  // Activations between two neighbouring stages, or their gradients on the way back.
  GridTransfers::Transfer Between(size_t from, size_t to) const {
    if (std::max(from, to) >= request_.stages.size()) return std::nullopt;
    return End(from, from < to)
        .Leaving(from < to ? "activations" : "gradients", End(to, to < from));
  }

  StageGrid GridOf(size_t stage, const PartsOnGrids& parts, size_t grid) const {
    const absl::StatusOr<int64_t> microbatch = MicrobatchOf(request_, parts.grids[grid]);
    CHECK_OK(microbatch.status());
    const GridShape shape =
        ShapeOf(request_.model, request_.training, parts.grids[grid], *microbatch);
    return {.sizes = SizesOf(stage, parts, grid),
            .work = WorkOfBlock(request_.model, request_.training, request_.device, shape),
            .logits = LogitsProducts(request_.model, request_.device, shape)};
  }

  StageSettings SettingsOf(size_t rank, size_t stage) const {
    const PartsOnGrids parts = PartsOf(stage);
    std::vector<StageGrid> grids;
    for (size_t grid = 0; grid < parts.grids.size(); ++grid) {
      grids.push_back(GridOf(stage, parts, grid));
    }
    // Before the first stage there is none: an index that no stage has.
    const size_t before = stage == 0 ? request_.stages.size() : stage - 1;
    return {.rank = static_cast<RankIndex>(rank),
            .number = stages_of_[rank].size() > 1 ? std::optional(static_cast<StageIndex>(stage))
                                                  : std::nullopt,
            .is_first = stage == 0,
            .is_last = stage + 1 == request_.stages.size(),
            .model = request_.model,
            .training = request_.training,
            .parts = parts,
            .grids = std::move(grids),
            .activations_in = Between(before, stage),
            .activations_out = Between(stage, stage + 1),
            .gradients_in = Between(stage + 1, stage),
            .gradients_out = Between(stage, before)};
  }

  const GridProgramRequest& request_;
  const Schedule schedule_;
  const std::vector<std::vector<StageIndex>> stages_of_;  // by rank
  ProgramWriter program_;
};

}  // namespace

absl::StatusOr<PartsOnGrids> PartsOfStage(const std::vector<GridStage>& stages, size_t stage) {
  StageParts of{.layers = stages[stage].layers, .has_logits = stage + 1 == stages.size()};
  for (size_t before = 0; before < stage; ++before) of.first_layer += stages[before].layers;
  return PartsOf({stages[stage].grid, stages[stage].others}, of);
}

absl::StatusOr<std::vector<GridStage>> StagesOfGrid(const Grid& grid,
                                                    std::span<const DeviceId> devices,
                                                    const StageCounts& counts) {
  const int64_t ranks = grid.pipeline();
  const int64_t stages = ranks * counts.of_rank;
  if (std::ssize(devices) != grid.devices() || counts.layers % stages != 0) {
    return Refused("expected ", grid.devices(), " devices, and layers that ", stages,
                   " stages divide, found ", devices.size(), " and ", counts.layers);
  }
  Grid of_stage = grid;
  of_stage[GridAxis::kPipeline] = 1;
  std::vector<GridStage> made;
  for (int64_t stage = 0; stage < stages; ++stage) {
    if (stage >= ranks) {
      made.push_back(made[stage % ranks]);
      continue;
    }
    std::vector<DeviceId> of;
    // Only copies are outside of stages.
    const int64_t inner = grid.tensor_degree();
    for (int64_t copy = 0; copy < grid.data(); ++copy) {
      const auto first = devices.begin() + (copy * ranks + stage) * inner;
      of.insert(of.end(), first, first + inner);
    }
    ASSIGN_OR_RETURN(Mesh mesh, MeshOfGrid(of_stage, of));
    made.push_back({.grid = of_stage,
                    .mesh = std::make_shared<const Mesh>(std::move(mesh)),
                    .layers = counts.layers / stages});
  }
  return made;
}

absl::StatusOr<LayerProgram> MakeGridProgram(const GridProgramRequest& request) {
  RETURN_IF_ERROR(Validate(request.model));
  RETURN_IF_ERROR(Validate(request.training));
  RETURN_IF_ERROR(CheckTraining(request.model, request.training));
  if (request.microbatches < 1) {
    return Refused("expected microbatches, found ", request.microbatches);
  }
  int64_t layers = 0;
  for (size_t stage = 0; stage < request.stages.size(); ++stage) {
    RETURN_IF_ERROR(At(absl::StrCat("stage ", stage), CheckStage(request, stage)));
    layers += request.stages[stage].layers;
  }
  if (layers != request.model.layers) {
    return Refused("expected stages of the model's ", request.model.layers, " layers, found ",
                   layers);
  }
  Schedule schedule = request.schedule;
  if (schedule.ranks.empty() && request.stages.size() == 1)
    schedule = OneByOne(request.microbatches);
  RETURN_IF_ERROR(CheckStageSchedule(schedule, request.stages.size(), request.microbatches));
  RETURN_IF_ERROR(CheckMeshes(request.stages, StagesOfRanks(schedule, request.stages.size())));
  LayerProgram program = Maker(request, std::move(schedule)).Make();
  RETURN_IF_ERROR(Validate(program));
  return program;
}

}  // namespace crossmesh
