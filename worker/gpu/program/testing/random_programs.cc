#include "worker/gpu/program/testing/random_programs.h"

#include "common/base/check.h"
#include "common/plan/testing/random_tensors.h"
#include "common/plan/testing/random_topology.h"
#include "controller/reshard/plan_reshard.h"
#include "worker/executor/testing/random_case.h"

#include <memory>
#include <utility>
#include <vector>

#include <absl/status/status.h>

namespace crossmesh {
namespace {

std::shared_ptr<const TensorTable> RandomTable(RandomSource& random) {
  RandomTensorsOptions options;
  // Now and then relays of several chunks and leaves.
  if (random.OneIn(3))
    options = {.slots_max = 6, .tensors_max = 3, .length_max = 48, .rank_max = 3};
  return std::make_shared<const TensorTable>(RandomTensorTable(random, options));
}

// Each hop a random number of periods behind the one that brings its bytes.
void DrawPeriods(RandomSource& random, Plan::Spec& spec) {
  std::vector<int32_t> period(spec.tensors->devices().size());
  for (const Relay& relay : spec.relays) {
    period[relay.root] = -1;
    for (int64_t h = relay.first_hop; h < relay.first_hop + relay.hop_count; ++h) {
      Hop& hop = spec.hops[h];
      hop.period = period[hop.from] + 1;
      if (random.OneIn(4)) hop.period += static_cast<int32_t>(random.Below(4));
      period[hop.to] = hop.period;
    }
  }
}

Plan PlannedOf(RandomSource& random, std::shared_ptr<const TensorTable> tensors) {
  ReshardRequest request;
  request.tensors = std::move(tensors);
  request.topology = RandomTopology(random, *request.tensors,
                                    {.bytes_per_second = 1'000'000, .undescribed = true});
  request.strategy =
      random.OneIn(2) ? Strategy::kRelay : kAllStrategies[random.Below(kAllStrategies.size())];
  request.seed = static_cast<uint64_t>(random.Below(1000));
  request.chunk_bytes = Plan::kLeafBytes * random.Between(1, 2);
  auto plan = PlanReshard(request);
  CHECK_OK(plan);
  return *std::move(plan);
}

Plan DrawnOf(RandomSource& random, const std::shared_ptr<const TensorTable>& tensors) {
  auto slicing = Slicing::Create(*tensors);
  CHECK_OK(slicing);
  Plan::Spec spec =
      RandomPlan(random, tensors, std::make_shared<const Slicing>(*std::move(slicing)));
  DrawPeriods(random, spec);
  auto plan = Plan::Create(std::move(spec));
  CHECK_OK(plan);
  return *std::move(plan);
}

}  // namespace

Plan RandomPlanned(RandomSource& random) { return PlannedOf(random, RandomTable(random)); }

Plan RandomDrawn(RandomSource& random) { return DrawnOf(random, RandomTable(random)); }

Plan RandomQuantized(RandomSource& random) {
  const auto tensors = std::make_shared<const TensorTable>(RandomQuantizedTable(random));
  return random.OneIn(2) ? PlannedOf(random, tensors) : DrawnOf(random, tensors);
}

absl::StatusOr<DevicePrograms> RandomPrograms(RandomSource& random, const Plan& plan) {
  GpuProgram::Options options{
      .staging_bytes = random.OneIn(4) ? int64_t{2} << 20 : random.Between(1, 512) * 256,
      .checksums = !random.OneIn(4),
      .steps_ahead = static_cast<int32_t>(random.Below(6))};
  absl::StatusOr<DevicePrograms> programs = ProgramsOf(plan, options);
  while (absl::IsResourceExhausted(programs.status())) {
    options.staging_bytes += options.staging_bytes / 4 + 256;
    programs = ProgramsOf(plan, options);
  }
  return programs;
}

}  // namespace crossmesh
