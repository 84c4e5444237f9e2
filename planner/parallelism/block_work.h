#pragma once

#include "planner/parallelism/device_profile.h"
#include "planner/parallelism/grid_shape.h"
#include "planner/parallelism/product_prices.h"

#include <array>

namespace crossmesh {

// Seconds that a device computes for one microbatch in one block, without communication.
struct BlockWork {
  std::array<LayerProducts, kBlockMatrices> product{};
  double attention = 0;    // the core: scores, softmax, values
  double elementwise = 0;  // layer norms, residuals, activation functions: what memory limits

  // Of one kind, of all matrices.
  double Products(double LayerProducts::* kind) const {
    return product[0].*kind + product[1].*kind + product[2].*kind + product[3].*kind;
  }
  double weight_gradients() const { return Products(&LayerProducts::weight_gradient); }
  double forward() const { return Products(&LayerProducts::forward) + attention + elementwise; }
  double backward() const {
    return Products(&LayerProducts::input_gradient) + weight_gradients() +
           2 * (attention + elementwise);
  }
  // A matrix's product, and what follows it before the next one's.
  double ForwardSegment(int matrix) const { return product[matrix].forward + Between(matrix); }
  double BackwardSegment(int matrix) const {
    return product[matrix].backward() + 2 * Between(matrix);
  }
  double Between(int matrix) const {
    return (matrix == 0 ? attention : 0) + elementwise / kBlockMatrices;
  }
};

BlockWork WorkOfBlock(const Transformer& model, const Training& training,
                      const DeviceProfile& device, const GridShape& shape);
// The same, with what is remembered of products.
BlockWork WorkOfBlock(const Transformer& model, const Training& training, ProductPrices& products,
                      const GridShape& shape);

// Sizes of a matrix's products on a device, for one expert of those that it has.
ProductSize SizeOf(const Transformer& model, const Training& training, const GridShape& shape,
                   int matrix);

ProductSize SizeOfLogits(const Transformer& model, const GridShape& shape);

// The products of the logits; nothing without a vocabulary.
LayerProducts LogitsProducts(const Transformer& model, const DeviceProfile& device,
                             const GridShape& shape);
LayerProducts LogitsProducts(const Transformer& model, ProductPrices& products,
                             const GridShape& shape);

}  // namespace crossmesh
