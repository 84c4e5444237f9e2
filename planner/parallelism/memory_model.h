#pragma once

#include "planner/parallelism/grid_shape.h"

#include <array>
#include <cstdint>
#include <span>

#include <absl/strings/string_view.h>

namespace crossmesh {

// Bytes that the fullest device of a grid holds at its peak, term by term.
struct MemoryTerms {
  double weights = 0;
  double gradients = 0;
  double optimizer = 0;  // master copy and two moments
  // Of what z cuts, as programs have it for each message: the whole and the device's shard.
  double gathered = 0;          // weights: one of each matrix and way
  double cached = 0;            // gathered weights that stay for the backward pass
  double pending_scatters = 0;  // gradients: of each matrix as many as may be under way
  double activations = 0;       // of all microbatches in flight
  double live_block = 0;        // of the block that is computed again
  double logits = 0;

  double total() const;
  double state() const { return weights + gradients + optimizer; }
  friend bool operator==(const MemoryTerms&, const MemoryTerms&) = default;
};
struct MemoryTermField {
  absl::string_view name;
  double MemoryTerms::* term = nullptr;
};
inline constexpr std::array<MemoryTermField, 9> kMemoryTermFields = {{
    {"weights", &MemoryTerms::weights},
    {"gradients", &MemoryTerms::gradients},
    {"optimizer state", &MemoryTerms::optimizer},
    {"gathered weights", &MemoryTerms::gathered},
    {"cached weights", &MemoryTerms::cached},
    {"pending scatters", &MemoryTerms::pending_scatters},
    {"activations", &MemoryTerms::activations},
    {"block computed again", &MemoryTerms::live_block},
    {"logits", &MemoryTerms::logits},
}};

// Of the first stage, or of the last one where that holds more. Cost: constant.
MemoryTerms MemoryOf(const Transformer& model, const Training& training, const GridShape& shape);

// Of a model in one stage whose parts are on several grids, with copied state: those of one.
struct PartsOfShape {
  GridShape shape;
  double attention = 0;  // of so many layers
  double mlp = 0;
  bool has_logits = false;
  double cached_attention = 0;  // of so many, gathered weights stay
  double cached_mlp = 0;
};
MemoryTerms MemoryOf(const Transformer& model, const Training& training,
                     std::span<const PartsOfShape> parts);

// Parameters whose optimizer state the device has, of the first stage.
double OptimizedParameters(const Transformer& model, const Training& training,
                           const GridShape& shape);

// What one microbatch leaves in one block when nothing is computed again. Replicated activations of
// a plain transformer with flash attention take rows * h (10 / c + 24 / r), as Megatron's formula
// has it for c = 1 (arXiv 2205.05198); scattered ones rows * h * 34 / (c r).
double BlockActivationBytes(const Transformer& model, const Training& training,
                            const GridShape& shape);

}  // namespace crossmesh
