// What exchanges beside the tensor group send: bytes of one device, in one layer.

#pragma once

#include "planner/parallelism/training.h"

#include <array>
#include <cstdint>

namespace crossmesh {

// Attention over a sequence cut into parts (arXiv 2310.01889, 2309.14509). What causal masks save
// is not counted.
struct ContextExchange {
  int64_t parts = 1;
  double tokens = 0;   // of a part, over all sequences
  double q_width = 0;  // of the heads that a device has
  double kv_width = 0;
  ContextMethod method = ContextMethod::kRing;
  double element_bytes = 2;
};
struct PassBytes {
  double forward = 0;
  double backward = 0;
};
PassBytes BytesOf(const ContextExchange& exchange);

// A mixture of experts: tokens go to their experts and back.
struct ExpertExchange {
  int64_t parts = 1;
  double tokens = 0;  // of a device
  double experts_per_token = 1;
  double hidden = 0;
  double imbalance = 1;  // the busiest device's tokens over the mean
  double element_bytes = 2;
};
PassBytes BytesOf(const ExpertExchange& exchange);

// Of a parameter: master copy and two moments, 4 bytes each.
inline constexpr double kOptimizerBytes = 12;

// Copies over a data axis, of which more and more is cut (arXiv 1910.02054).
struct ZeroShape {
  double parameters = 0;  // of a device if nothing were cut
  int64_t data = 1;
  int stage = 0;
  double weight_bytes = 2;
  double gradient_bytes = 4;
  int64_t microbatches = 1;
};
// Weights, gradients, and 12 bytes of master copy and moments.
double ZeroStateBytes(const ZeroShape& shape);
// That a device sends in a step.
double ZeroWireBytes(const ZeroShape& shape);

}  // namespace crossmesh
