#pragma once

#include "planner/redistribute/baselines/contiguous_steps.h"
#include "planner/redistribute/local_type.h"

#include <cstdint>
#include <vector>

namespace crossmesh {

// One op of the normal form's rewriting. The head of a dimension is its most minor atom.
struct RewriteOp {
  enum class Kind : uint8_t {
    kGather,      // the head `a` of `dimension` goes
    kSlice,       // `a` becomes the head of `dimension`
    kMove,        // the head `a` of `dimension` becomes the head of `other`
    kSwapHeads,   // of `dimension` and `other`
    kReplace,     // the head `a` of `dimension`, by `b` that cuts nothing
    kSwapWithin,  // `a` and `b`, both of `dimension`
  };
  Kind kind = Kind::kGather;
  int dimension = 0;
  int other = 0;
  int32_t a = 0;
  int32_t b = 0;
};

// The type after an op that can be done.
void Apply(const RewriteOp& op, ContiguousType& type);

// The ops from source to destination in normal form: slices, then exchanges, then gathers.
std::vector<RewriteOp> Rewrite(const TypeSpace& space, const ContiguousType& source,
                               const ContiguousType& destination);

}  // namespace crossmesh
