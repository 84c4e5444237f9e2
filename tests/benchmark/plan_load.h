#pragma once

#include "client/client.h"
#include "crossmesh/v1/reshard_service.pb.h"

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace crossmesh {

// Clients that ask a controller for plans, each for the next one as soon as it has an answer. Not
// thread-safe, but for numbers.
class PlanLoad {
 public:
  // `matrices`: of each plan, which takes as long as they are many.
  PlanLoad(std::string address, int matrices) : address_(std::move(address)), matrices_(matrices) {}

  struct Outcome {
    double per_second = 0;
    std::vector<double> answered;  // seconds
    std::vector<double> beside;    // of each those in which it was not planned
  };
  enum class Plans { kCached, kNew };
  Outcome Run(int clients, double seconds, Plans plans);

  // A plan that was not asked for before.
  v1::PlanReshardRequest NewPlan();

 private:
  Outcome RunClient(const std::atomic<bool>& stop, Plans plans);

  const std::string address_;
  const int matrices_;
  std::atomic<int64_t> next_ = 1;
};

}  // namespace crossmesh
