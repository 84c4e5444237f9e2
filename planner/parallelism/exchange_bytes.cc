#include "planner/parallelism/exchange_bytes.h"

namespace crossmesh {

PassBytes BytesOf(const ContextExchange& exchange) {
  const auto others = static_cast<double>(exchange.parts - 1);
  switch (exchange.method) {
    case ContextMethod::kRing:
    case ContextMethod::kAllGather: {
      // Keys and values forward; both and their gradients backward.
      const double once = 2 * others * exchange.tokens * exchange.kv_width * exchange.element_bytes;
      return {once, 2 * once};
    }
    case ContextMethod::kUlysses: {
      // Queries, keys and values there, the result back.
      const double once = others / static_cast<double>(exchange.parts) * exchange.tokens * 2 *
                          (exchange.q_width + exchange.kv_width) * exchange.element_bytes;
      return {once, once};
    }
  }
  return {};
}

PassBytes BytesOf(const ExpertExchange& exchange) {
  const auto parts = static_cast<double>(exchange.parts);
  const double once = 2 * (parts - 1) / parts * exchange.tokens * exchange.experts_per_token *
                      exchange.hidden * exchange.imbalance * exchange.element_bytes;
  return {once, once};
}

double ZeroStateBytes(const ZeroShape& shape) {
  const auto data = static_cast<double>(shape.data);
  const double weights = shape.stage >= 3 ? shape.weight_bytes / data : shape.weight_bytes;
  const double gradients = shape.stage >= 2 ? shape.gradient_bytes / data : shape.gradient_bytes;
  const double optimizer = shape.stage >= 1 ? kOptimizerBytes / data : kOptimizerBytes;
  return shape.parameters * (weights + gradients + optimizer);
}

double ZeroWireBytes(const ZeroShape& shape) {
  const auto data = static_cast<double>(shape.data);
  const double part = (data - 1) / data * shape.parameters;
  const auto microbatches = static_cast<double>(shape.microbatches);
  const double gradients = part * shape.gradient_bytes;
  const double weights = part * shape.weight_bytes;
  if (shape.stage == 0) return 2 * gradients;
  // Of 3, weights are gathered forward and backward.
  return gradients + (shape.stage >= 3 ? 2 * microbatches * weights : weights);
}

}  // namespace crossmesh
