#include "worker/tasks/task_leases.h"

#include "common/base/check.h"
#include "common/plan/testing/chain_plan.h"
#include "common/plan/worker_part.h"
#include "common/testing/status_matchers.h"

#include <algorithm>
#include <memory>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

constexpr int64_t kStorageBytes = 64;

DeviceRank RankOf(const TensorTable& tensors, const DeviceId& device) {
  const auto found = std::ranges::find(tensors.devices(), device);
  CHECK(found != tensors.devices().end());
  return static_cast<DeviceRank>(found - tensors.devices().begin());
}

// One element goes from a.1 to a.0, in place and in one storage: a.1 has a source and nothing to
// receive, a.0 the reverse.
std::shared_ptr<const LaidOutPart> PartThatMovesAll() {
  const Plan plan =
      ChainPlan(TensorOf("[1]: x=2 on a.1,a.0 [x] chunk -> x=2 on a.0-1 [x] chunk"), {"a.1 > a.0"},
                {.binding = BindingMode::kInPlace, .shared_storage = true});
  auto parts = CutParts(plan, {plan.tensors().devices()});
  CHECK_OK(parts);
  auto part = LaidOutPart::Create(std::make_shared<const WorkerPart>(parts->front()));
  CHECK_OK(part);
  return *std::move(part);
}

TEST(TaskLeasesTest, ADeviceWithNothingToReceiveReadsTheOneMemoryAllTheSame) {
  StorageTable storages{Arena::Pages::kSmall};
  for (const int32_t device : {0, 1}) {
    ASSERT_OK(storages.Create({"weights", {"a", device}}, kStorageBytes));
  }
  StartRequest request;
  request.source_storage = request.destination_storage = "weights";
  const auto part = PartThatMovesAll();
  ASSERT_OK_AND_ASSIGN(const TaskLeases leases, TaskLeases::Take(request, *part, storages));
  const TensorTable& tensors = part->prepared->part().tensors();
  EXPECT_TRUE(leases.writes(RankOf(tensors, {"a", 0})));
  EXPECT_FALSE(leases.writes(RankOf(tensors, {"a", 1})));
  const auto sources = leases.BindSources(*part);
  ASSERT_EQ(sources.size(), 1u);
  EXPECT_NE(sources.at(RankOf(tensors, {"a", 1})).tensor.at(0), nullptr);
  ASSERT_OK_AND_ASSIGN(const StorageStatus status, storages.Status({"weights", {"a", 1}}));
  EXPECT_EQ(status.readers, 1);
}

}  // namespace
}  // namespace crossmesh
