#include "worker/executor/testing/random_case.h"

#include "common/base/check.h"
#include "common/plan/testing/random_tensors.h"
#include "common/plan/testing/tables.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace crossmesh {

namespace {

Plan RandomPlanOf(RandomSource& random, TensorTable table) {
  auto tensors = std::make_shared<const TensorTable>(std::move(table));
  auto slicing = Slicing::Create(*tensors);
  CHECK_OK(slicing);
  auto plan = Plan::Create(
      RandomPlan(random, tensors, std::make_shared<const Slicing>(*std::move(slicing))));
  CHECK_OK(plan);
  return *std::move(plan);
}

// A tensor and layouts over an axis x of two that cut none of its blocks.
struct BlockedTensor {
  std::string shape;
  std::vector<std::string> layouts;
};

const std::vector<BlockedTensor>& BlockedTensors() {
  static const auto* const tensors = new std::vector<BlockedTensor>{
      {"[256, 256]", {"[x, -]", "[-, x]", "[-, -]", "[x, -] chunk"}},
      {"[300, 200]",
       {"[-, -]", "{[0:128, 0:200]; [128:300, 0:200]}", "{[0:300, 0:128]; [0:300, 128:200]}",
        "{[256:300, 0:200] [0:128, 0:200]; [128:256, 0:200]}"}},
      {"[2, 256, 130]", {"[x, -, -]", "[-, x, -]", "[-, -, -]"}},
  };
  return *tensors;
}

}  // namespace

Plan RandomCase(RandomSource& random) {
  RandomTensorsOptions options;
  // Now and then relays of several chunks and leaves.
  if (random.OneIn(8))
    options = {.slots_max = 6, .tensors_max = 3, .length_max = 48, .rank_max = 3};
  return RandomPlanOf(random, RandomTensorTable(random, options));
}

TensorTable RandomQuantizedTable(RandomSource& random) {
  const std::vector<std::string> meshes = {"x=2 on a.0-1", "x=2 on a.0,b.0", "x=2 on b.0-1"};
  const TensorText meshes_only = {.source_mesh = random.Pick(meshes),
                                  .destination_mesh = random.Pick(meshes)};
  std::vector<TensorText> texts;
  for (int64_t i = random.Between(2, 4); i > 0; --i) {
    const BlockedTensor& tensor = random.Pick(BlockedTensors());
    TensorText& text = texts.emplace_back(meshes_only);
    text.shape = tensor.shape;
    text.source = random.Pick(tensor.layouts);
    text.destination = random.Pick(tensor.layouts);
    text.type = DataType::kBF16;
    // Scales share classes with what is not converted.
    if (i > 1) text.sent_as = random.OneIn(4) ? DataType::kF32 : DataType::kF8E4M3;
  }
  random.Shuffle(texts);
  return TableOf(texts);
}

Plan RandomQuantizedCase(RandomSource& random) {
  return RandomPlanOf(random, RandomQuantizedTable(random));
}

std::vector<int32_t> DealDevices(RandomSource& random, const Plan& plan, int32_t workers) {
  std::vector<int32_t> worker_of_device;
  for (size_t i = 0; i < plan.tensors().devices().size(); ++i) {
    worker_of_device.push_back(static_cast<int32_t>(random.Below(workers)));
  }
  return worker_of_device;
}

}  // namespace crossmesh
