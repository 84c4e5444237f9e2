#include "planner/pipeline/planning/microbatch_sizes.h"

#include "common/base/status_macros.h"

#include <algorithm>

namespace crossmesh {

std::vector<MicrobatchSize> SizesOf(const std::vector<int64_t>& samples) {
  std::vector<MicrobatchSize> sizes;
  for (const int64_t of_one : samples) {
    const auto found = std::ranges::find(sizes, of_one, &MicrobatchSize::samples);
    if (found == sizes.end()) {
      sizes.push_back({.samples = of_one, .count = 1});
    } else {
      ++found->count;
    }
  }
  return sizes;
}

absl::StatusOr<TensorSpec> TensorOfSize(const PipelineDescription::Tensor& tensor,
                                        int64_t samples) {
  if (!tensor.batch_dimension) return tensor.tensor;
  TensorSpec of_size = tensor.tensor;
  std::vector<int64_t> lengths(of_size.shape.lengths().begin(), of_size.shape.lengths().end());
  lengths[*tensor.batch_dimension] = samples;
  ASSIGN_OR_RETURN(of_size.shape, Shape::Create(lengths));
  return of_size;
}

}  // namespace crossmesh
