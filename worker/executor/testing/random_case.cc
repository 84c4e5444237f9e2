#include "worker/executor/testing/random_case.h"

#include "common/base/check.h"
#include "common/plan/testing/random_tensors.h"

#include <cstdlib>
#include <memory>
#include <utility>

#include <absl/strings/numbers.h>

namespace crossmesh {

Plan RandomCase(RandomSource& random) {
  RandomTensorsOptions options;
  // Now and then relays of several chunks and leaves.
  if (random.OneIn(8))
    options = {.slots_max = 6, .tensors_max = 3, .length_max = 48, .rank_max = 3};
  auto tensors = std::make_shared<const TensorTable>(RandomTensorTable(random, options));
  auto slicing = Slicing::Create(*tensors);
  CHECK_OK(slicing);
  auto plan = Plan::Create(
      RandomPlan(random, tensors, std::make_shared<const Slicing>(*std::move(slicing))));
  CHECK_OK(plan);
  return *std::move(plan);
}

std::vector<int32_t> DealDevices(RandomSource& random, const Plan& plan, int32_t workers) {
  std::vector<int32_t> worker_of_device;
  for (size_t i = 0; i < plan.tensors().devices().size(); ++i) {
    worker_of_device.push_back(static_cast<int32_t>(random.Below(workers)));
  }
  return worker_of_device;
}

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  uint64_t value = 0;
  return text != nullptr && absl::SimpleAtoi(text, &value) ? value : otherwise;
}

}  // namespace crossmesh
