#pragma once

#include "planner/pipeline/profile.h"

#include <vector>

namespace crossmesh {

// The shortest times in which one microbatch passes through a pipeline, by stage.
struct PipelineWays {
  std::vector<double> head;  // from the begin of all to the begin of the forward op
  std::vector<double> gap;   // from the begin of the forward op to that of the backward op
  std::vector<double> tail;  // from the end of the backward op to the end of all
  // The longest op in the head, the stage's own included, and the longest one in the tail. The
  // forward op of microbatch k, counted from 0, begins at the earliest k times this after the head.
  std::vector<double> head_pace;
  std::vector<double> tail_pace;
};

// In the split form, backward ops are those that give the gradient of the input, and all ends with
// a gradient of the weights. Cost: linear in stages and edges.
PipelineWays FindWays(const PipelineProfile& profile, BackwardForm form);

// Of the op that gives the gradient of the input.
inline double BackwardSeconds(const StageProfile& stage, BackwardForm form) {
  return form == BackwardForm::kFull ? stage.backward_seconds() : stage.input_gradient_seconds;
}

}  // namespace crossmesh
