#pragma once

#include "common/mesh/layout.h"
#include "common/mesh/mesh.h"
#include "planner/layers/planned_layers.h"

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace crossmesh {

// Rank 0 on a.0 to c.0, rank 1 on d.0: sums over all devices of rank 0, twice, and what goes on
// from the first op to rank 1.
inline LayerProgram SampleLayers() {
  LayerProgram program{.name = "sums"};
  program.ranks = {
      {.mesh = std::make_shared<const Mesh>(*ParseMesh("c=3 on a.0,b.0,c.0"))},
      {.mesh = std::make_shared<const Mesh>(*ParseMesh("d=1 on d.0"))},
  };
  program.ops = {{.name = "first", .rank = 0, .seconds = 1},
                 {.name = "head", .rank = 1, .seconds = 2},
                 {.name = "second", .rank = 0, .seconds = 3},
                 {.name = "end", .rank = 0}};
  const TensorSpec out{
      .name = "out", .type = DataType::kF32, .shape = *Shape::Create(std::vector<int64_t>{6, 6})};
  const LayerProgram::Tensor sum{
      .tensor = out, .source = *ParseLayout("[-, -]"), .destination = *ParseLayout("[-, -]")};
  const LayerProgram::Tensor onward{
      .tensor = out, .source = *ParseLayout("[c, -]"), .destination = *ParseLayout("[-, -]")};
  program.transfers = {
      {.name = "sum0", .tensors = {sum}, .partial = {"c"}, .messages = {{0, 2}}},
      {.name = "onward", .tensors = {onward}, .buffers = 2, .messages = {{0, 1}}},
      {.name = "sum1", .tensors = {sum}, .partial = {"c"}, .messages = {{2, 3}}},
  };
  return program;
}

inline std::shared_ptr<const PlannedLayers> PlanSampleLayers() {
  return PlanLayers(SampleLayers(), Topology()).value();
}

}  // namespace crossmesh
