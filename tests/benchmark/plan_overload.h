#pragma once

#include "crossmesh/v1/reshard_service.pb.h"

#include <cstdint>
#include <string>
#include <vector>

#include <absl/functional/function_ref.h>

namespace crossmesh {

// More plans than a controller can make, asked for at a fixed rate, however it answers, by clients
// that take turns, each with a connection of its own.
struct PlanOverload {
  std::string address;
  int clients = 1;
  double per_second = 1;
  double seconds = 1;

  struct Outcome {
    double per_second = 0;        // plans that came in that time
    std::vector<double> refused;  // after so many seconds
    std::vector<double> told;     // when to come again, in seconds: of each that was refused
    double latest = 0;            // seconds by which the latest request was sent too late
  };
  // `next`: another request for each number.
  Outcome Run(absl::FunctionRef<v1::PlanReshardRequest(int64_t)> next) const;
};

}  // namespace crossmesh
