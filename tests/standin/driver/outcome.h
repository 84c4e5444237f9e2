#pragma once

#include <string>
#include <utility>

#include <cuda.h>

namespace crossmesh {

// What a call comes to. A violation is the caller's mistake, and goes into the report; a failure is
// the machine's, or an injected one. Immutable.
struct Outcome {
  CUresult result = CUDA_SUCCESS;
  std::string text;
  bool is_violation = false;

  bool ok() const { return result == CUDA_SUCCESS; }
};

inline Outcome Failure(CUresult result, std::string text) { return {result, std::move(text)}; }
inline Outcome Violation(CUresult result, std::string text) {
  return {result, std::move(text), true};
}

}  // namespace crossmesh
