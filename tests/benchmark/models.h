#pragma once

#include "common/mesh/manifest.h"

namespace crossmesh {

// The tensors of Qwen3-235B-A22B, a mixture of 128 experts in each of 94 layers: 36,945 in bf16,
// with names and shapes of its published configuration.
Manifest Qwen3Manifest();

// One tensor "tensor" of this many rows and columns in f32.
Manifest OneMatrix(int64_t rows, int64_t columns);

}  // namespace crossmesh
