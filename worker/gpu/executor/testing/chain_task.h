#pragma once

#include "common/base/check.h"
#include "common/plan/plan.h"
#include "common/plan/testing/random_tensors.h"
#include "worker/executor/testing/tile_memory.h"
#include "worker/gpu/compiler/testing/compiled_parts.h"
#include "worker/gpu/compiler/testing/small_plans.h"

#include <cstdint>
#include <utility>
#include <vector>

namespace crossmesh {

// Plans of a chain from a.0 (rank 0) to b.0 (rank 1) and on to b.1 (rank 2), with the compiled
// parts and the memory of an execution.
struct ChainTask {
  // One relay, in chunks of one leaf, one after the other.
  explicit ChainTask(int64_t chunks,
                     const CompiledPart::Options& options = {.staging_bytes = 1 << 20})
      : ChainTask(Made(ThroughTwoHops(chunks * Plan::kLeafBytes)), options) {}

  // As many relays of a few bytes, one after the other: of steps, and little else.
  static ChainTask OfSmallRelays(int64_t relays) {
    constexpr int64_t kBytes = 256;
    Plan::Spec spec = ThroughTwoHops(relays * kBytes);
    spec.periods = static_cast<int32_t>(relays);
    CutRelay(relays, spec);
    for (int64_t i = 0; i < relays; ++i) {
      spec.relays[i].due = {.begin = static_cast<int32_t>(i * DueTime::kParts / relays),
                            .end = static_cast<int32_t>((i + 1) * DueTime::kParts / relays)};
    }
    return ChainTask(Made(std::move(spec)), {.staging_bytes = 1 << 20});
  }

  // Relays side by side: in each of so many steps, one chunk of each.
  struct Shape {
    int64_t relays = 1;
    int64_t steps = 1;
    int64_t chunk_bytes = Plan::kLeafBytes;
  };
  static ChainTask OfRelays(const Shape& shape, int64_t staging_bytes) {
    Plan::Spec spec = ThroughTwoHops(shape.relays * shape.steps * shape.chunk_bytes);
    spec.chunk_bytes = shape.chunk_bytes;
    spec.periods = static_cast<int32_t>(shape.steps);
    CutRelay(shape.relays, spec);
    return ChainTask(Made(std::move(spec)), {.staging_bytes = staging_bytes});
  }

  // The same relay in a broadcast group of all three.
  static ChainTask OfBroadcasts(int64_t chunks) {
    Plan::Spec spec = ThroughTwoHops(chunks * Plan::kLeafBytes);
    spec.broadcast_groups.Add(std::vector<DeviceRank>{0, 1, 2});
    return ChainTask(Made(std::move(spec)), {.staging_bytes = 1 << 20});
  }

  ChainTask(const ChainTask&) = delete;
  ChainTask& operator=(const ChainTask&) = delete;

  const Plan plan;
  const TileMemory memory;
  CompiledParts compiled_parts;  // by rank

 private:
  // The only relay, to so many of the same length, due at the same time.
  static void CutRelay(int64_t relays, Plan::Spec& spec) {
    const Relay whole = spec.relays.front();
    const std::vector<Hop> hops = std::exchange(spec.hops, {});
    spec.relays.clear();
    for (int64_t i = 0; i < relays; ++i) {
      Relay relay = whole;
      relay.begin = whole.end / relays * i;
      relay.end = whole.end / relays * (i + 1);
      relay.first_hop = std::ssize(spec.hops);
      spec.relays.push_back(relay);
      spec.hops.insert(spec.hops.end(), hops.begin(), hops.end());
    }
    PlaceHopsInPlanOrder(spec);
  }

  ChainTask(Plan made, const CompiledPart::Options& options) : plan(std::move(made)), memory(plan) {
    auto compiled = CompiledPartsOf(plan, options);
    CHECK_OK(compiled);
    compiled_parts = *std::move(compiled);
  }
};

}  // namespace crossmesh
