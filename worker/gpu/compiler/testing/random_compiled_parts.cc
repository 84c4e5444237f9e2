#include "worker/gpu/compiler/testing/random_compiled_parts.h"

#include "common/base/check.h"
#include "common/plan/broadcast_groups.h"
#include "common/plan/testing/random_tensors.h"
#include "common/plan/testing/random_topology.h"
#include "common/plan/testing/tables.h"
#include "common/testing/random_cases.h"
#include "planner/reshard/plan_reshard.h"
#include "worker/executor/testing/random_case.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/string_view.h>

namespace crossmesh {
namespace {

std::shared_ptr<const TensorTable> RandomTable(RandomSource& random) {
  RandomTensorsOptions options;
  // Now and then relays of several chunks and leaves.
  if (random.OneIn(3))
    options = {.slots_max = 6, .tensors_max = 3, .length_max = 48, .rank_max = 3};
  return std::make_shared<const TensorTable>(RandomTensorTable(random, options));
}

// Each hop a random number of periods after the one that brings its bytes.
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

std::string DevicesOfHosts(const BroadcastShape& shape, int64_t first_host) {
  std::string devices;
  for (int64_t host = first_host; host < shape.members; ++host) {
    absl::StrAppend(&devices, host == first_host ? "h" : ",h", host, ".0-", shape.shards - 1);
  }
  return devices;
}

std::vector<TensorText> RandomMatrices(RandomSource& random, const BroadcastShape& shape) {
  const bool is_gathered = random.OneIn(2);
  const auto mesh = [&](absl::string_view axis, int64_t length, int64_t first_host) {
    return absl::StrCat(axis, "=", length, ",x=", shape.shards, " on ",
                        DevicesOfHosts(shape, first_host));
  };
  const std::string all = mesh("y", shape.members, 0);
  const std::string first = absl::StrCat("x=", shape.shards, " on h0.0-", shape.shards - 1);
  std::vector<TensorText> tensors;
  for (int64_t i = random.Between(1, 3); i > 0; --i) {
    tensors.push_back(
        {.shape = absl::StrCat("[", random.Between(1, 300), ", ", random.Between(1, 500), "]"),
         .source_mesh = is_gathered ? all : first,
         .source = is_gathered ? "[x, y] chunk" : "[x, -] chunk",
         .destination_mesh = is_gathered ? all : mesh("r", shape.members - 1, 1),
         .destination = "[x, -] chunk",
         .type = random.OneIn(2) ? DataType::kF32 : DataType::kBF16});
  }
  return tensors;
}

// How so many devices of a host have a tensor.
struct M2nSideText {
  std::string mesh;
  int64_t parts = 1;
  int64_t cut = 0;  // the dimension
};

M2nSideText RandomM2nSide(RandomSource& random, absl::string_view host, int64_t devices,
                          int64_t rank) {
  M2nSideText side{.cut = random.Below(rank)};
  do side.parts = random.Between(1, devices);
  while (devices % side.parts != 0);
  const std::string parts = absl::StrCat("x=", side.parts);
  const std::string copies = absl::StrCat("r=", devices / side.parts);
  side.mesh = random.OneIn(2) ? absl::StrCat(parts, ",", copies) : absl::StrCat(copies, ",", parts);
  absl::StrAppend(&side.mesh, " on ", host, ".0-", devices - 1);
  return side;
}

std::string LayoutOf(const M2nSideText& side, int64_t rank) {
  std::string layout = "[";
  for (int64_t d = 0; d < rank; ++d) {
    absl::StrAppend(&layout, d > 0 ? ", " : "", d == side.cut ? "x" : "-");
  }
  return layout + "]";
}

TensorText RandomM2nTensor(RandomSource& random, int64_t sources, int64_t destinations,
                           bool is_backwards) {
  const int64_t rank = random.Between(1, 4);
  const M2nSideText from = RandomM2nSide(random, is_backwards ? "b" : "a", sources, rank);
  const M2nSideText to = RandomM2nSide(random, is_backwards ? "a" : "b", destinations, rank);
  std::string shape = "[";
  for (int64_t d = 0; d < rank; ++d) {
    // What both sides cut alike may also be cut at other places.
    const int64_t multiple = (d == from.cut ? from.parts : 1) * (d == to.cut ? to.parts : 1);
    absl::StrAppend(&shape, d > 0 ? ", " : "", multiple * random.Between(1, rank == 1 ? 9000 : 9));
  }
  constexpr DataType kTypes[] = {DataType::kU8, DataType::kBF16, DataType::kF32, DataType::kF64};
  return {.shape = shape + "]",
          .source_mesh = from.mesh,
          .source = LayoutOf(from, rank),
          .destination_mesh = to.mesh,
          .destination = LayoutOf(to, rank),
          .type = kTypes[random.Below(4)]};
}

}  // namespace

Plan RandomPlanned(RandomSource& random) { return PlannedOf(random, RandomTable(random)); }

Plan RandomDrawn(RandomSource& random) { return DrawnOf(random, RandomTable(random)); }

Plan RandomQuantized(RandomSource& random) {
  const auto tensors = std::make_shared<const TensorTable>(RandomQuantizedTable(random));
  return random.OneIn(2) ? PlannedOf(random, tensors) : DrawnOf(random, tensors);
}

Plan RandomBroadcast(RandomSource& random, const BroadcastShape& shape) {
  const Plan relays = PlannedOf(
      random, std::make_shared<const TensorTable>(TableOf(RandomMatrices(random, shape))));
  Plan::Spec spec = relays.spec();
  const IdSetList groups =
      FindBroadcastGroups(spec.relays, spec.hops, spec.tensors->devices().size());
  spec.broadcast_groups = {};
  for (int32_t i = 0; i < groups.size(); ++i) {
    if (!random.OneIn(4)) spec.broadcast_groups.Add(groups[i]);
  }
  auto plan = Plan::Create(std::move(spec));
  CHECK_OK(plan);
  return *std::move(plan);
}

Plan RandomM2n(RandomSource& random) {
  const int64_t sources = random.Between(1, 4), destinations = random.Between(1, 4);
  const bool is_backwards = random.OneIn(2);
  std::vector<TensorText> tensors;
  for (int64_t i = random.Between(1, 4); i > 0; --i) {
    tensors.push_back(RandomM2nTensor(random, sources, destinations, is_backwards));
  }
  ReshardRequest request;
  request.tensors = std::make_shared<const TensorTable>(TableOf(tensors));
  request.strategy = Strategy::kSendRecv;
  auto routes = PlanReshard(request);
  CHECK_OK(routes);
  Plan::Spec spec = routes->spec();
  spec.m2n = true;
  auto plan = Plan::Create(std::move(spec));
  CHECK_OK(plan);
  return *std::move(plan);
}

Plan RandomOfSize(int64_t devices_max, MakePlan make_plan, RandomSource& random) {
  while (true) {
    Plan plan = make_plan(random);
    if (std::ssize(plan.tensors().devices()) <= devices_max) return plan;
  }
}

absl::Status RunRandomCases(uint64_t seed, int64_t cases,
                            absl::FunctionRef<absl::Status(RandomSource& random)> run) {
  cases = RandomCases(cases);
  seed = FromEnvironment("CROSSMESH_SEED", seed);
  for (const uint64_t end = seed + cases; seed < end; ++seed) {
    RandomSource random(seed);
    const absl::Status status = run(random);
    if (status.ok()) continue;
    return absl::Status(status.code(), absl::StrCat("CROSSMESH_SEED=", seed,
                                                    " CROSSMESH_CASES=1: ", status.message()));
  }
  return absl::OkStatus();
}

absl::StatusOr<CompiledParts> RandomCompiledParts(RandomSource& random, const Plan& plan) {
  CompiledPart::Options options{
      .staging_bytes = random.OneIn(4) ? int64_t{2} << 20 : random.Between(1, 512) * 256,
      .checksums = !random.OneIn(4),
      .steps_ahead = static_cast<int32_t>(random.Below(6))};
  absl::StatusOr<CompiledParts> compiled_parts = CompiledPartsOf(plan, options);
  while (absl::IsResourceExhausted(compiled_parts.status())) {
    options.staging_bytes += options.staging_bytes / 4 + 256;
    compiled_parts = CompiledPartsOf(plan, options);
  }
  return compiled_parts;
}

}  // namespace crossmesh
