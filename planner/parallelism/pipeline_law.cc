#include "planner/parallelism/pipeline_law.h"

#include <algorithm>

namespace crossmesh {
namespace {

// What a microbatch takes in the steady state beyond its work: between stages i and j of 1F1B a
// round trip is shared by j - i + 1 microbatches, and the longest trip has most transfers.
double SteadyTransferSeconds(const EqualPipeline& shape) {
  const auto ranks = static_cast<double>(shape.ranks);
  return 2 * shape.transfer_seconds * (ranks - 1) / ranks;
}

}  // namespace

double PipelineSeconds(const EqualPipeline& shape) {
  const auto ranks = static_cast<double>(shape.ranks);
  const auto microbatches = static_cast<double>(shape.microbatches);
  const auto chunks = static_cast<double>(shape.chunks);
  const double work = microbatches * shape.seconds();
  const double ramps = (ranks - 1) * shape.seconds();
  const double trip = 2 * (ranks - 1) * shape.transfer_seconds;
  if (shape.ranks == 1) return work;
  switch (shape.schedule) {
    case GridSchedule::kGpipe:
      return work + ramps + trip;
    case GridSchedule::kOneForwardOneBackward:
      return work + ramps + trip + (microbatches - 1) * SteadyTransferSeconds(shape);
    case GridSchedule::kEager:
      return work + ramps + trip;
    case GridSchedule::kInterleaved:
      // The first microbatch passes every chunk there and back; others hide their transfers, since
      // each chunk has others' work to do meanwhile.
      return work + ramps / chunks + 2 * (ranks * chunks - 1) * shape.transfer_seconds;
    case GridSchedule::kZbH1:
      // Gradients of the weights fill what a second round trip would leave.
      return work +
             (ranks - 1) * (shape.forward_seconds + shape.input_gradient_seconds -
                            shape.weight_gradient_seconds) +
             trip + std::min(trip, (microbatches - 1) * SteadyTransferSeconds(shape));
  }
  return 0;
}

double InFlight(GridSchedule schedule, int64_t ranks, int64_t microbatches, int64_t chunks) {
  const auto all = static_cast<double>(microbatches);
  switch (schedule) {
    case GridSchedule::kGpipe:
      return all;
    case GridSchedule::kOneForwardOneBackward:
    case GridSchedule::kZbH1:
      return std::min(all, static_cast<double>(ranks));
    case GridSchedule::kEager:
      return std::min(all, static_cast<double>(2 * ranks - 1));
    case GridSchedule::kInterleaved:
      return std::min(all, static_cast<double>(ranks) +
                               static_cast<double>(ranks - 1) / static_cast<double>(chunks));
  }
  return all;
}

double UnevenPipelineSeconds(std::span<const double> stage_seconds, int64_t microbatches) {
  double sum = 0;
  double longest = 0;
  for (const double seconds : stage_seconds) {
    sum += seconds;
    longest = std::max(longest, seconds);
  }
  return sum + static_cast<double>(microbatches - 1) * longest;
}

}  // namespace crossmesh
