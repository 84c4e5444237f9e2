#pragma once

#include "planner/parallelism/device_profile.h"
#include "planner/parallelism/grid_shape.h"

#include <array>

namespace crossmesh {

// Seconds that a device computes for one microbatch in one block, without communication. Every
// matrix has three products of equal time: of the output, of the input's gradient and of the
// weights' gradient.
struct BlockWork {
  std::array<double, kBlockMatrices> product{};
  double attention = 0;    // the core: scores, softmax, values
  double elementwise = 0;  // layer norms, residuals, activation functions: what memory limits

  double products() const { return product[0] + product[1] + product[2] + product[3]; }
  double forward() const { return products() + attention + elementwise; }
  // What follows a matrix's product before the next one's, and that product.
  double ForwardSegment(int matrix) const {
    return product[matrix] + (matrix == 0 ? attention : 0) + elementwise / kBlockMatrices;
  }
  double BackwardSegment(int matrix) const { return 2 * ForwardSegment(matrix); }
};

BlockWork WorkOfBlock(const Transformer& model, const Training& training,
                      const DeviceProfile& device, const GridShape& shape);

// Seconds of the logits' product, forward; nothing without a vocabulary.
double LogitsSeconds(const Transformer& model, const DeviceProfile& device, const GridShape& shape);

}  // namespace crossmesh
