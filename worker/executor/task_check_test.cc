#include "worker/executor/task_check.h"

#include "common/testing/is_refused.h"
#include "common/testing/status_matchers.h"
#include "worker/executor/testing/executor_fixture.h"

#include <cstddef>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kStagedMax = Plan::kLeafBytes;

class TaskCheckTest : public ExecutorTest {};

TEST_F(TaskCheckTest, AChunkMayBeAsLargeAsTheStaging) {
  const Plan plan = MakePlan("a.0", "b.0-1");
  const TileMemory memory(plan);
  const TaskSpec spec = MakeSpec(0, plan, memory);
  EXPECT_OK(CheckTask(spec, plan.chunk_bytes()));
  EXPECT_THAT(CheckTask(spec, plan.chunk_bytes() - 1),
              IsRefused("chunks of 65536 bytes: expected at most the 65535 bytes"));
}

TEST_F(TaskCheckTest, AWorkerIsOneOfThePeers) {
  const Plan plan = MakePlan("a.0", "b.0-1");
  const TileMemory memory(plan);
  TaskSpec spec = MakeSpec(0, plan, memory);
  EXPECT_THAT(NeededPeers(spec), ElementsAre(false, true));
  for (const int32_t peer : {-1, 2}) {
    spec.peer_of_device[1] = peer;
    EXPECT_THAT(CheckTask(spec, kStagedMax), IsRefused("expected the worker of b.0, found none"));
  }
  for (const int32_t peer : {0, 1}) {
    spec.peer_of_device[1] = peer;
    EXPECT_OK(CheckTask(spec, kStagedMax));
  }
}

TEST_F(TaskCheckTest, ADeviceHasMemoryForEveryTensor) {
  const Plan plan = MakePlan("a.0", "b.0-1");
  const TileMemory memory(plan);
  TaskSpec spec = MakeSpec(1, plan, memory);
  EXPECT_OK(CheckTask(spec, kStagedMax));
  spec.destinations[1].tensor.clear();
  EXPECT_THAT(CheckTask(spec, kStagedMax),
              IsRefused("destination of device b.0: expected memory for the 2097152 bytes of "
                        "tensor 0, found none"));
}

TEST_F(TaskCheckTest, SoDoesASourceThatIsOnlyCopied) {
  const Plan plan = MakeGatheringPlan("a.0", kStagedMax);
  const TileMemory memory(plan);
  TaskSpec spec = MakeSpec(0, plan, memory);
  EXPECT_OK(CheckTask(spec, kStagedMax));
  spec.sources[0].tensor[0] = nullptr;
  EXPECT_THAT(CheckTask(spec, kStagedMax), IsRefused("source of device a.0: expected memory"));
}

TEST_F(TaskCheckTest, ScalesOfADestinationHaveMemoryAndThoseOfASourceNeedNone) {
  const Plan plan = MakeQuantizedPlan("b.0");
  const TileMemory memory(plan);
  TaskSpec sending = MakeSpec(0, plan, memory);
  for (const DeviceRank device : {0, 1}) sending.sources[device].tensor.resize(1);
  EXPECT_OK(CheckTask(sending, kStagedMax));
  TaskSpec receiving = MakeSpec(1, plan, memory);
  EXPECT_OK(CheckTask(receiving, kStagedMax));
  receiving.destinations[2].tensor[1] = nullptr;
  EXPECT_THAT(CheckTask(receiving, kStagedMax), IsRefused("bytes of tensor 1, found none"));
}

}  // namespace
}  // namespace crossmesh
