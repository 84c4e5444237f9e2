#include "planner/parallelism/block_work.h"

namespace crossmesh {
namespace {

// Bytes that the scores of one head, one query and one key go through without flash attention:
// written, read and written by the softmax, by dropout with its mask, and read again.
constexpr double kScoreBytes = 13;
// Of one element of the residual stream: two layer norms, two residuals with dropout.
constexpr double kResidualBytes = 22;

// In which parts tensors on the other side of a product are cut: k of a normal layer by c, n by r,
// and rows by the other one where activations are scattered.
double SideParts(const Training& training, const Grid& grid, GridAxis side) {
  if (training.activations == ActivationForm::kScattered) {
    return static_cast<double>(grid.c() * grid.r());
  }
  return static_cast<double>(grid[side]);
}

double AttentionSeconds(const Transformer& model, const Training& training,
                        const DeviceProfile& device, const GridShape& shape) {
  const auto sequence = static_cast<double>(training.sequence);
  const auto width = static_cast<double>(model.head_width);
  const double queries = sequence / static_cast<double>(shape.grid.context());
  const double heads = static_cast<double>(shape.microbatch * model.heads) /
                       SideParts(training, shape.grid, GridAxis::kR);
  if (training.flash_attention) {
    return 2 * heads * ProductSecondsOnChip(device, queries, sequence, width);
  }
  return heads * (2 * ProductSeconds(device, queries, sequence, width) +
                  kScoreBytes * queries * sequence / device.memory_bytes_per_second);
}

double ElementwiseSeconds(const Transformer& model, const Training& training,
                          const DeviceProfile& device, const GridShape& shape) {
  const auto hidden = static_cast<double>(model.hidden);
  const auto qkv = static_cast<double>(model.query_width() + 2 * model.kv_width());
  const double experts = model.experts > 0 ? static_cast<double>(model.experts_per_token) : 1;
  const double inner = static_cast<double>(model.feed_forward) * (model.gated ? 6 : 4) * experts;
  const double bytes = kResidualBytes * hidden / SideParts(training, shape.grid, GridAxis::kC) +
                       (2 * qkv + inner) / SideParts(training, shape.grid, GridAxis::kR);
  return shape.rows * bytes / device.memory_bytes_per_second;
}

BlockWork WithoutProducts(const Transformer& model, const Training& training,
                          const DeviceProfile& device, const GridShape& shape) {
  return {.attention = AttentionSeconds(model, training, device, shape),
          .elementwise = ElementwiseSeconds(model, training, device, shape)};
}

LayerProducts Times(double copies, const LayerProducts& one) {
  return {copies * one.forward, copies * one.input_gradient, copies * one.weight_gradient};
}

}  // namespace

ProductSize SizeOf(const Transformer& model, const Training& training, const GridShape& shape,
                   int matrix) {
  const MatrixShape& of = shape.matrices[matrix];
  double rows = shape.rows;
  if (model.experts > 0 && matrix >= kFirstExpertMatrix) {
    rows *= static_cast<double>(model.experts_per_token) * training.expert_imbalance / of.copies;
  }
  return {.m = rows, .n = of.n, .k = of.k};
}

BlockWork WorkOfBlock(const Transformer& model, const Training& training,
                      const DeviceProfile& device, const GridShape& shape) {
  BlockWork work = WithoutProducts(model, training, device, shape);
  for (int i = 0; i < kBlockMatrices; ++i) {
    work.product[i] =
        Times(shape.matrices[i].copies, ProductsOf(device, SizeOf(model, training, shape, i)));
  }
  return work;
}

BlockWork WorkOfBlock(const Transformer& model, const Training& training, ProductPrices& products,
                      const GridShape& shape) {
  BlockWork work = WithoutProducts(model, training, products.device(), shape);
  for (int i = 0; i < kBlockMatrices; ++i) {
    work.product[i] =
        Times(shape.matrices[i].copies, products.Of(SizeOf(model, training, shape, i)));
  }
  return work;
}

ProductSize SizeOfLogits(const Transformer& model, const GridShape& shape) {
  return {.m = shape.rows,
          .n = static_cast<double>(model.vocabulary) / static_cast<double>(shape.grid.r()),
          .k = static_cast<double>(model.hidden) / static_cast<double>(shape.grid.c())};
}

LayerProducts LogitsProducts(const Transformer& model, const DeviceProfile& device,
                             const GridShape& shape) {
  if (model.vocabulary == 0) return {};
  return ProductsOf(device, SizeOfLogits(model, shape));
}

LayerProducts LogitsProducts(const Transformer& model, ProductPrices& products,
                             const GridShape& shape) {
  if (model.vocabulary == 0) return {};
  return products.Of(SizeOfLogits(model, shape));
}

}  // namespace crossmesh
