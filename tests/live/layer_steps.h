// Small steps of trainings as layer programs, to be rehearsed on four workers.

#pragma once

#include "client/client.h"
#include "common/mesh/layout.h"
#include "common/mesh/mesh.h"
#include "common/mesh/shape.h"
#include "crossmesh/v1/pipeline_service.pb.h"
#include "planner/layers/layer_program_codec.h"
#include "planner/parallelism/programs/grid_program.h"
#include "planner/pipeline/schedules/interleaved.h"
#include "planner/pipeline/schedules/window_order.h"

#include <memory>
#include <span>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>

namespace crossmesh {

inline const std::vector<std::string> kStepWorkers = {"node-0", "node-1", "node-2", "node-3"};
inline constexpr char kStepDevices[] = "node-0.0,node-1.0,node-2.0,node-3.0";

inline v1::StartPipelineRequest Rehearsed(const LayerProgram& program) {
  v1::StartPipelineRequest start;
  *start.mutable_inline_layers() = ToProto(program);
  start.set_request_id(NewRequestId());
  start.set_rehearsal(true);
  start.mutable_stall_limit()->set_seconds(1);
  return start;
}

inline v1::StartPipelineRequest Rehearsed(LayerProgram program, double seconds_of_op) {
  for (LayerProgram::Op& op : program.ops) op.seconds = seconds_of_op;
  return Rehearsed(program);
}

// Two layers on a grid of four devices, whose ops take their time.
inline v1::StartPipelineRequest StepOnGrid(double seconds) {
  GridProgramRequest request{.model = PlainTransformer("small", 2, 64, 8),
                             .training = {.batch = 16, .sequence = 16},
                             .device = *FindDevicePreset("a100")};
  request.model.vocabulary = 256;
  request.stages = *StagesOfGrid(*ParseGrid("r=2,z=2"), *ParseDevices(kStepDevices), {.layers = 2});
  return Rehearsed(*MakeGridProgram(request), seconds);
}

// The same with the MLPs on another grid: joints move between the two.
inline v1::StartPipelineRequest StepOnGridsOfLayers(double seconds) {
  GridProgramRequest request{.model = PlainTransformer("small", 2, 64, 8),
                             .training = {.batch = 16, .sequence = 16},
                             .device = *FindDevicePreset("a100")};
  request.model.vocabulary = 256;
  const LayerGrids grids = *ParseLayerGrids("r=2,z=2+z=4@mlp");
  const std::vector<Grid> all = {grids.grid, *ParseGrid("z=4")};
  request.stages = {
      {.grid = grids.grid,
       .mesh = std::make_shared<const Mesh>(*MeshOfGrids(all, *ParseDevices(kStepDevices))),
       .layers = 2,
       .others = grids.others}};
  return Rehearsed(*MakeGridProgram(request), seconds);
}

// Four layers on two ranks of two devices, each of which has two stages.
inline v1::StartPipelineRequest InterleavedStep(double seconds) {
  constexpr InterleavedCounts kCounts = {.ranks = 2, .chunks = 2, .microbatches = 4};
  GridProgramRequest request{.model = PlainTransformer("small", 4, 64, 8),
                             .training = {.batch = 16, .sequence = 16},
                             .microbatches = kCounts.microbatches,
                             .device = *FindDevicePreset("a100")};
  request.model.vocabulary = 256;
  request.stages = *StagesOfGrid(*ParseGrid("z=2,pipeline=2"), *ParseDevices(kStepDevices),
                                 {.layers = 4, .of_rank = kCounts.chunks});
  request.schedule = *MakeInterleaved(kCounts);
  return Rehearsed(*MakeGridProgram(request), seconds);
}

// Two stages, each with a grid of its own.
inline v1::StartPipelineRequest StepOnStages(double seconds) {
  GridProgramRequest request{.model = PlainTransformer("small", 2, 64, 8),
                             .training = {.batch = 16, .sequence = 16},
                             .microbatches = 4,
                             .device = *FindDevicePreset("a100")};
  request.model.vocabulary = 256;
  const std::vector<DeviceId> devices = *ParseDevices(kStepDevices);
  for (const char* text : {"r=2", "c=2"}) {
    GridStage& stage =
        request.stages.emplace_back(GridStage{.grid = *ParseGrid(text), .layers = 1});
    const auto own = std::span(devices).subspan(2 * (request.stages.size() - 1), 2);
    stage.mesh = std::make_shared<const Mesh>(*MeshOfGrid(stage.grid, own));
  }
  request.schedule = *MakeEagerOneForwardOneBackward(2, request.microbatches);
  return Rehearsed(*MakeGridProgram(request), seconds);
}

// A sum over four devices, beside an op that needs nothing of it and takes long.
inline v1::StartPipelineRequest LongOpBesideASum() {
  LayerProgram program;
  const absl::StatusOr<Mesh> mesh = ParseMesh(absl::StrCat("x=4 on ", kStepDevices));
  program.ranks.push_back({.mesh = std::make_shared<const Mesh>(*mesh)});
  program.ops = {{.name = "layer0.forward", .seconds = 0.7},
                 {.name = "layer1.forward", .seconds = 2.2},
                 {.name = "layer1.update"}};
  const Layout whole = *ParseLayout("[-]");
  program.transfers.push_back(
      {.name = "sum",
       .tensors = {{.tensor = {.name = "sum", .shape = Shape::Create({{4096}}).value()},
                    .source = whole,
                    .destination = whole}},
       .partial = {"x"},
       .messages = {{.producer = 0, .consumer = 2}}});
  return Rehearsed(program);
}

}  // namespace crossmesh
