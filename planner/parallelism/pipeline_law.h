// Closed forms of schedules over equal stages. They are held to the simulated schedules of
// planner/pipeline.

#pragma once

#include "planner/parallelism/training.h"

#include <cstdint>
#include <span>

namespace crossmesh {

// A rank of a pipeline, and what it takes for one microbatch, all of its chunks together.
struct EqualPipeline {
  GridSchedule schedule = GridSchedule::kOneForwardOneBackward;
  int64_t ranks = 1;
  int64_t microbatches = 1;
  int64_t chunks = 1;
  double forward_seconds = 0;
  double input_gradient_seconds = 0;
  double weight_gradient_seconds = 0;
  double transfer_seconds = 0;  // of a message between neighbours, either way

  double seconds() const {
    return forward_seconds + input_gradient_seconds + weight_gradient_seconds;
  }
};

// From the first begin to the last end. Exact without transfers. With those that take a small part
// of an op, 1F1B waits for a round trip in every microbatch, the others only while the pipeline
// fills and empties. Zero bubble wants gradients of the weights that take no longer than
// forward ops.
double PipelineSeconds(const EqualPipeline& shape);

// Microbatches whose activations the first rank holds at once, in those of all its chunks.
double InFlight(GridSchedule schedule, int64_t ranks, int64_t microbatches, int64_t chunks);

// Stages that take unlike long: the sum of all, and the longest once more for each further
// microbatch (Alpa, arXiv 2201.12023).
double UnevenPipelineSeconds(std::span<const double> stage_seconds, int64_t microbatches);

}  // namespace crossmesh
