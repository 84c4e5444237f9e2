#include "worker/tasks/task_leases.h"

#include "common/base/check.h"
#include "common/plan/testing/chain_plan.h"
#include "common/plan/worker_part.h"
#include "common/testing/status_matchers.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

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

// a.0 keeps 32 bytes, which a.1 gets as well.
class KeptTileTest : public testing::Test {
 protected:
  KeptTileTest() {
    for (const char* name : {"weights", "others"}) {
      for (const int32_t device : {0, 1}) {
        EXPECT_OK(storages_.Create({name, {"a", device}}, kStorageBytes));
      }
    }
    request_.source_storage = request_.destination_storage = "weights";
  }

  static std::shared_ptr<const LaidOutPart> MakePart(BindingMode binding, bool shared_storage) {
    const Plan plan = ChainPlan(TensorOf("[8]: x=1 on a.0 [-] -> x=2 on a.0-1 [-]"), {"a.0 > a.1"},
                                {.copies = {{.slice_class = 0, .device = 0}},
                                 .binding = binding,
                                 .shared_storage = shared_storage});
    auto parts = CutParts(plan, {plan.tensors().devices()});
    CHECK_OK(parts);
    auto part = LaidOutPart::Create(std::make_shared<const WorkerPart>(parts->front()));
    CHECK_OK(part);
    return *std::move(part);
  }
  StorageStatus StatusOf(const std::string& name, int32_t device) {
    auto status = storages_.Status({name, {"a", device}});
    CHECK_OK(status);
    return *status;
  }
  // Of a.0, where its tile is read and where it is written.
  static std::byte* SourceOf(const TaskLeases& leases, const LaidOutPart& part) {
    return leases.BindSources(part).at(0).tensor.at(0);
  }
  static std::byte* DestinationOf(const TaskLeases& leases, const LaidOutPart& part) {
    return leases.BindDestinations(part).at(0).tensor.at(0);
  }

  StorageTable storages_{Arena::Pages::kSmall};
  StartRequest request_;
};

TEST_F(KeptTileTest, InOneMemoryIsReadWhereItIsWritten) {
  const auto part = MakePart(BindingMode::kInPlace, /*shared_storage=*/true);
  ASSERT_OK_AND_ASSIGN(const TaskLeases leases, TaskLeases::Take(request_, *part, storages_));
  EXPECT_EQ(SourceOf(leases, *part), DestinationOf(leases, *part));
  EXPECT_EQ(leases.BindSources(*part).size(), 1U);
  EXPECT_EQ(leases.BindDestinations(*part).size(), 2U);
  EXPECT_EQ(StatusOf("weights", 0).readers, 0);
  EXPECT_TRUE(StatusOf("weights", 0).writing);
}

TEST_F(KeptTileTest, InTwoStoragesIsReadFromItsOwn) {
  const auto part = MakePart(BindingMode::kInPlace, /*shared_storage=*/true);
  request_.destination_storage = "others";
  ASSERT_OK_AND_ASSIGN(const TaskLeases leases, TaskLeases::Take(request_, *part, storages_));
  EXPECT_NE(SourceOf(leases, *part), DestinationOf(leases, *part));
  EXPECT_EQ(StatusOf("weights", 0).readers, 1);
  EXPECT_FALSE(StatusOf("weights", 0).writing);
  EXPECT_TRUE(StatusOf("others", 0).writing);
}

TEST_F(KeptTileTest, WithAShadowIsReadFromTheVersionBefore) {
  const auto part = MakePart(BindingMode::kShadow, /*shared_storage=*/true);
  ASSERT_OK_AND_ASSIGN(const TaskLeases leases, TaskLeases::Take(request_, *part, storages_));
  EXPECT_NE(SourceOf(leases, *part), DestinationOf(leases, *part));
  EXPECT_EQ(StatusOf("weights", 0).readers, 1);
  EXPECT_EQ(StatusOf("weights", 0).state, StorageState::kReady);
}

// Nothing has proven that it would not be overwritten before it is read.
TEST_F(KeptTileTest, OfAPlanForTwoStoragesIsNotReadFromTheOneThatIsWritten) {
  const auto part = MakePart(BindingMode::kInPlace, /*shared_storage=*/false);
  EXPECT_THAT(TaskLeases::Take(request_, *part, storages_),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("expected no readers before writing in place")));
  EXPECT_EQ(StatusOf("weights", 0).readers, 0);
  EXPECT_EQ(StatusOf("weights", 0).state, StorageState::kReady);
}

TEST_F(KeptTileTest, ADeviceIsCommittedOnceAndThenWrittenNoMore) {
  const auto part = MakePart(BindingMode::kInPlace, /*shared_storage=*/true);
  ASSERT_OK_AND_ASSIGN(TaskLeases leases, TaskLeases::Take(request_, *part, storages_));
  ASSERT_TRUE(leases.writes(0));
  EXPECT_OK(leases.Commit(0));
  EXPECT_FALSE(leases.writes(0));
  EXPECT_TRUE(leases.writes(1));
  EXPECT_EQ(StatusOf("weights", 0).generation, 2U);
  EXPECT_FALSE(StatusOf("weights", 0).writing);
  // As one that has no byte.
  EXPECT_OK(leases.Commit(0));
  EXPECT_EQ(StatusOf("weights", 0).generation, 2U);
}

TEST_F(KeptTileTest, WhatIsOnlyReadNeedsNoDestination) {
  const Plan plan = ChainPlan(TensorOf("[8]: x=1 on a.0 [-] -> x=1 on a.1 [-]"), {"a.0 > a.1"},
                              {.binding = BindingMode::kInPlace, .shared_storage = true});
  ASSERT_OK_AND_ASSIGN(const std::vector<WorkerPart> parts,
                       CutParts(plan, {plan.tensors().devices()}));
  ASSERT_OK_AND_ASSIGN(const auto part,
                       LaidOutPart::Create(std::make_shared<const WorkerPart>(parts.front())));
  ASSERT_OK_AND_ASSIGN(TaskLeases leases, TaskLeases::Take(request_, *part, storages_));
  EXPECT_EQ(StatusOf("weights", 0).readers, 1);
  EXPECT_TRUE(StatusOf("weights", 1).writing);
  leases.AbandonAll();
  EXPECT_FALSE(StatusOf("weights", 1).writing);
  EXPECT_THAT(leases.BindDestinations(*part), IsEmpty());
}

}  // namespace
}  // namespace crossmesh
