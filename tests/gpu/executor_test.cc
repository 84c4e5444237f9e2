// Random plans on GPUs: every destination element is what gathering and slicing gives.
// CROSSMESH_SEED and CROSSMESH_CASES choose what is run.

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/plan/plan.h"
#include "common/plan/testing/random_source.h"
#include "common/plan/testing/random_tensors.h"
#include "common/plan/testing/random_topology.h"
#include "planner/reshard/plan_reshard.h"
#include "planner/reshard/strategy.h"
#include "tests/gpu/gpu_mirror.h"
#include "tests/gpu/real_gpu.h"
#include "tests/standin/rank_processes.h"
#include "worker/executor/testing/random_case.h"
#include "worker/executor/testing/tile_memory.h"
#include "worker/gpu/compiler/testing/random_compiled_parts.h"
#include "worker/gpu/executor/gpu_binding.h"
#include "worker/gpu/executor/testing/executor_rank.h"

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

constexpr ByteCount kMirrorBytes(int64_t{32} << 20);

// A plan of some tensors between no more devices than there are ranks.
Plan PlanFor(int ranks, RandomSource& random) {
  ReshardRequest request;
  do {
    request.tensors = std::make_shared<const TensorTable>(RandomTensorTable(
        random, {.slots_max = ranks, .hosts_max = 2, .length_max = 28, .rank_max = 3}));
  } while (std::ssize(request.tensors->devices()) > ranks);
  request.topology = RandomTopology(random, *request.tensors,
                                    {.bytes_per_second = 1'000'000, .undescribed = true});
  request.strategy = kAllStrategies[random.Below(kAllStrategies.size())];
  request.seed = static_cast<uint64_t>(random.Below(1000));
  request.chunk_bytes = Plan::kLeafBytes;
  auto plan = PlanReshard(request);
  CHECK_OK(plan);
  return *std::move(plan);
}

// Where the tiles of a device are on the GPU.
GpuTiles TilesOnGpu(const TileMemory& memory, DeviceRank device, const GpuMirror& mirror) {
  GpuTiles tiles = TilesOf(memory, device);
  for (uint64_t& tile : tiles.source) tile = mirror.OnGpu(tile);
  for (uint64_t& tile : tiles.destination) tile = mirror.OnGpu(tile);
  return tiles;
}

absl::Status RunCase(ExecutorRank& rank, int number, int ranks, Meeting& meeting,
                     RandomSource& random, GpuMirror& mirror) {
  const Plan plan = PlanFor(ranks, random);
  ASSIGN_OR_RETURN(const CompiledParts compiled_parts, RandomCompiledParts(random, plan));
  // A rank without a part in the last plans is ahead, and would take the others for stalled.
  meeting.Wait();
  if (number >= std::ssize(compiled_parts)) return absl::OkStatus();
  TileMemory memory(plan);
  mirror.Clear();
  for (const std::span<std::byte> block : memory.blocks()) RETURN_IF_ERROR(mirror.Add(block));
  RETURN_IF_ERROR(mirror.CopyToGpu());
  ASSIGN_OR_RETURN(GpuTaskSpec spec,
                   rank.Spec(compiled_parts[number], TilesOnGpu(memory, number, mirror)));
  RETURN_IF_ERROR(rank.Run(std::move(spec)).status());
  RETURN_IF_ERROR(mirror.CopyFromGpu());
  RETURN_IF_ERROR(memory.CheckDestination(number));
  return memory.CheckUntouched();
}

absl::Status RunCases(ExecutorRank& rank, int number, int ranks, Meeting& meeting) {
  const auto cases = static_cast<int64_t>(FromEnvironment("CROSSMESH_CASES", 40));
  const uint64_t seed = FromEnvironment("CROSSMESH_SEED", 1);
  ASSIGN_OR_RETURN(const auto mirror, GpuMirror::Create(rank.gpu(), kMirrorBytes));
  for (int64_t i = 0; i < cases; ++i) {
    RandomSource random(seed + i);
    const absl::Status status = RunCase(rank, number, ranks, meeting, random, *mirror);
    if (status.ok()) continue;
    return absl::Status(status.code(), absl::StrCat("CROSSMESH_SEED=", seed + i,
                                                    " CROSSMESH_CASES=1: ", status.message()));
  }
  return absl::OkStatus();
}

struct RanksOnGpus {
  const char* name;
  int ranks = 1;
  bool share_gpu = false;

  friend void PrintTo(const RanksOnGpus& on, std::ostream* out) { *out << on.name; }
};

class ExecutorOnGpuTest : public testing::TestWithParam<RanksOnGpus> {
 protected:
  void SetUp() override {
    const RanksOnGpus& on = GetParam();
    const std::string lack = WhatLacks(
        {.gpus = on.share_gpu ? 1 : on.ranks, .nccl = true, .ranks_share_gpu = on.share_gpu});
    if (!lack.empty()) GTEST_SKIP() << lack;
  }
};

TEST_P(ExecutorOnGpuTest, EveryElementOfRandomPlansArrives) {
  const RanksOnGpus& on = GetParam();
  const auto results = RunRanks(on.ranks, [&on](int number, Meeting& meeting) -> absl::Status {
    if (on.share_gpu) setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
    ASSIGN_OR_RETURN(const auto driver, LoadDriver());
    ASSIGN_OR_RETURN(const auto nccl, LoadNccl());
    ASSIGN_OR_RETURN(const std::vector<std::string> uuids, Gpu::Uuids(*driver));
    ASSIGN_OR_RETURN(const auto rank, ExecutorRank::CreateOn(
                                          *driver, *nccl, uuids.at(on.share_gpu ? 0 : number), {}));
    RETURN_IF_ERROR(rank->JoinAll(on.ranks, number, meeting));
    RETURN_IF_ERROR(RunCases(*rank, number, on.ranks, meeting));
    return rank->Close();
  });
  EXPECT_THAT(results, testing::Each(testing::IsEmpty()));
}

INSTANTIATE_TEST_SUITE_P(RealGpus, ExecutorOnGpuTest,
                         testing::Values(RanksOnGpus{"OneRank", 1}, RanksOnGpus{"TwoGpus", 2},
                                         RanksOnGpus{"EightGpus", 8},
                                         RanksOnGpus{"TwoRanksOnOneGpu", 2, true}),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace crossmesh
