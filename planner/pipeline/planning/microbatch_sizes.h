// Microbatches of several sizes, and what is of which size.

#pragma once

#include "common/mesh/manifest.h"
#include "planner/pipeline/planning/pipeline_description.h"

#include <cstdint>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {

struct MicrobatchSize {
  int64_t samples = 0;
  int32_t count = 0;  // microbatches of the size

  friend bool operator==(const MicrobatchSize&, const MicrobatchSize&) = default;
};

// Each size once, in the order in which they come.
std::vector<MicrobatchSize> SizesOf(const std::vector<int64_t>& samples);

// The tensor for a microbatch of so many samples. InvalidArgument when the shape is too large.
absl::StatusOr<TensorSpec> TensorOfSize(const PipelineDescription::Tensor& tensor, int64_t samples);

}  // namespace crossmesh
