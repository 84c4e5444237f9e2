#pragma once

#include "common/mesh/reduction.h"
#include "worker/courses/course_places.h"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace crossmesh {

// The reduction of what a step has brought to a worker's devices, in pieces, so that its loop can
// look at other things between two. Allocates nothing. Thread-compatible.
class StepReduction {
 public:
  StepReduction(std::vector<CoursePlaces::Reducing> tensors, const Reduction& reduction)
      : tensors_(std::move(tensors)), reduction_(reduction) {}

  // Begins anew: other summands have come to the same places.
  void Rewind() { tensor_ = 0; }
  // Reduces about a MiB of summands, or what is left; returns how many bytes of them.
  int64_t ReducePiece();
  bool done() const { return tensor_ == tensors_.size(); }

 private:
  std::vector<CoursePlaces::Reducing> tensors_;
  Reduction reduction_;
  // What is next.
  size_t tensor_ = 0;
  int64_t row_ = 0;
  int64_t offset_ = 0;  // in the row
};

}  // namespace crossmesh
