#include "examples/tensor_parallel_training/training_phase.h"

#include "common/base/status_macros.h"
#include "common/mesh/mesh.h"
#include "planner/parallelism/device_profile.h"
#include "planner/pipeline/schedules/interleaved.h"
#include "planner/pipeline/schedules/placement.h"
#include "planner/pipeline/schedules/window_order.h"

#include <memory>
#include <utility>

#include <absl/status/status.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <absl/strings/strip.h>

namespace crossmesh::grid_training {
namespace {

absl::Status SetOverlaps(absl::string_view name, Overlaps& overlaps) {
  if (name == "none") {
    overlaps = kNoOverlaps;
  } else if (name == "all") {
    overlaps.backward_gathers = overlaps.split_batch = true;
  } else if (name != "most") {
    return absl::InvalidArgumentError(
        absl::StrCat("overlaps: expected none, most or all, found ", name));
  }
  return absl::OkStatus();
}

// A word after the grids.
absl::Status Set(absl::string_view word, TrainingPhase& phase) {
  if (word == "goes_on") {
    phase.goes_on = true;
    return absl::OkStatus();
  }
  if (word == ActivationFormName(ActivationForm::kScattered)) {
    phase.form = ActivationForm::kScattered;
    return absl::OkStatus();
  }
  if (word == VectorFormName(VectorForm::kDiagonal)) {
    phase.vectors = VectorForm::kDiagonal;
    return absl::OkStatus();
  }
  absl::string_view value = word;
  if (absl::ConsumePrefix(&value, "overlaps=")) return SetOverlaps(value, phase.overlaps);
  int count = 0;
  const std::pair<absl::string_view, absl::string_view> said =
      absl::StrSplit(word, absl::MaxSplits('=', 1));
  if (absl::SimpleAtoi(said.second, &count) && count >= 0) {
    if (said.first == "chunks") return phase.chunks = count, absl::OkStatus();
    if (said.first == "microbatches") return phase.microbatches = count, absl::OkStatus();
    if (said.first == "cached") return phase.cached_layers = count, absl::OkStatus();
    if (said.first == "pending") return phase.pending_scatters = count, absl::OkStatus();
    if (said.first == "steps") return phase.steps = count, absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("phase: expected scattered, diagonal, goes_on, overlaps=, or a number of "
                   "chunks=, microbatches=, cached=, pending= or steps=, found ",
                   word));
}

}  // namespace

int64_t TrainingPhase::devices() const {
  int64_t devices = 0;
  for (const LayerGrids& of_stage : grids) devices += of_stage.grid.devices();
  return devices;
}

absl::StatusOr<TrainingPhase> ParsePhase(absl::string_view text) {
  TrainingPhase phase;
  for (const absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    if (!phase.grids.empty()) {
      RETURN_IF_ERROR(Set(word, phase));
      continue;
    }
    for (const absl::string_view stage : absl::StrSplit(word, '|')) {
      ASSIGN_OR_RETURN(LayerGrids grids, ParseLayerGrids(stage));
      phase.grids.push_back(std::move(grids));
    }
  }
  if (phase.grids.empty()) return absl::InvalidArgumentError("phase: expected grids, found none");
  return phase;
}

absl::StatusOr<GridProgramRequest> RequestOf(const TrainingPhase& phase,
                                             const TrainingSettings& settings,
                                             std::span<const DeviceId> devices) {
  const auto ranks = static_cast<int32_t>(phase.grids.size());
  const int32_t stages = ranks * phase.chunks;
  if (stages < 1 || phase.devices() > std::ssize(devices) || settings.model.layers % stages != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("phase: expected ", phase.devices(), " devices, and layers for ", stages,
                     " stages alike, found ", devices.size(), " and ", settings.model.layers));
  }
  GridProgramRequest request{.model = settings.model,
                             .training = {.batch = settings.batch,
                                          .sequence = settings.sequence,
                                          .activations = phase.form,
                                          .keep_gathered = true,
                                          .vectors = phase.vectors,
                                          .cached_layers = phase.cached_layers,
                                          .pending_scatters = phase.pending_scatters,
                                          .element_bytes = sizeof(float),
                                          .overlaps = phase.overlaps},
                             .microbatches = phase.microbatches,
                             .type = DataType::kF32,
                             .device = *FindDevicePreset("a100")};
  std::vector<std::span<const DeviceId>> devices_of;  // by rank
  for (const LayerGrids& of_rank : phase.grids) {
    devices_of.push_back(devices.first(of_rank.grid.devices()));
    devices = devices.subspan(of_rank.grid.devices());
  }
  for (int32_t index = 0; index < stages; ++index) {
    const RankIndex rank = LoopedRank(index, ranks);
    const auto& [grid, others] = phase.grids[rank];
    GridStage& stage = request.stages.emplace_back(
        GridStage{.grid = grid, .layers = settings.model.layers / stages, .others = others});
    ASSIGN_OR_RETURN(const PartsOnGrids parts,
                     PartsOf({grid, others}, {.first_layer = index * stage.layers,
                                              .layers = stage.layers,
                                              .has_logits = index + 1 == stages}));
    ASSIGN_OR_RETURN(Mesh mesh, MeshOfGrids(parts.grids, devices_of[rank]));
    stage.mesh = std::make_shared<const Mesh>(std::move(mesh));
  }
  if (phase.chunks > 1) {
    ASSIGN_OR_RETURN(request.schedule, MakeInterleaved({.ranks = ranks,
                                                        .chunks = phase.chunks,
                                                        .microbatches = phase.microbatches}));
  } else if (stages > 1) {
    ASSIGN_OR_RETURN(request.schedule, MakeEagerOneForwardOneBackward(stages, phase.microbatches));
  }
  return request;
}

}  // namespace crossmesh::grid_training
