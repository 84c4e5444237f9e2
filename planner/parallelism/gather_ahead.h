#pragma once

#include <algorithm>

namespace crossmesh {

// Weights that are gathered one matrix ahead, in the order in which products need them. A gather
// begins when the product before it is next, so while that product still waits for its own weights
// both gathers share the port, byte by byte; only what is left then can hide behind the product.
// Thread-compatible.
class GatherAhead {
 public:
  // What hides of the next gather, of so many seconds by itself, behind the product before it and
  // what follows that.
  double Hidden(double seconds, double behind) {
    const double beside = std::min(late_, seconds);
    const double hidden = std::min(seconds - beside, behind);
    late_ = seconds - beside - hidden;
    return hidden;
  }

 private:
  double late_ = 0;  // of the last one, when its product was next
};

}  // namespace crossmesh
