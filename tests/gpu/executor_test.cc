// Random plans on GPUs: every destination element is what gathering and slicing gives.
// CROSSMESH_SEED and CROSSMESH_CASES choose what is run.

#include "common/base/status_macros.h"
#include "common/plan/plan.h"
#include "common/plan/testing/random_source.h"
#include "tests/gpu/gpu_mirror.h"
#include "tests/gpu/real_gpu.h"
#include "tests/standin/rank_processes.h"
#include "worker/executor/testing/tile_memory.h"
#include "worker/gpu/compiler/testing/random_compiled_parts.h"
#include "worker/gpu/executor/gpu_binding.h"
#include "worker/gpu/executor/testing/executor_rank.h"

#include <cstdint>
#include <cstdlib>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

// Where the tiles of a device are on the GPU.
GpuTiles TilesOnGpu(const TileMemory& memory, DeviceRank device, const GpuMirror& mirror) {
  GpuTiles tiles = TilesOf(memory, device);
  for (uint64_t& tile : tiles.source) tile = mirror.OnGpu(tile);
  for (uint64_t& tile : tiles.destination) tile = mirror.OnGpu(tile);
  return tiles;
}

absl::Status RunCase(ExecutorRank& rank, int number, int ranks, Meeting& meeting,
                     RandomSource& random, GpuMirror& mirror) {
  const Plan plan = RandomOfSize(ranks, RandomPlanned, random);
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
  ASSIGN_OR_RETURN(const auto mirror, GpuMirror::Create(rank.gpu()));
  return RunRandomCases(1, 40, [&](RandomSource& random) {
    return RunCase(rank, number, ranks, meeting, random, *mirror);
  });
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
