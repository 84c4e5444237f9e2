#pragma once

#include <vector>

#include <absl/functional/function_ref.h>

namespace crossmesh {

double MedianOf(std::vector<double> values);

// Wall time of one call.
double SecondsOf(absl::FunctionRef<void()> work);

// Processor time of this thread since its start: what work costs on one core, however busy the
// others are.
double ThreadSeconds();

}  // namespace crossmesh
