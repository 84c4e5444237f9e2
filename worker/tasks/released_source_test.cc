// Tasks that give their sources up.

#include "common/base/check.h"
#include "common/plan/course.h"
#include "common/plan/slicing.h"
#include "common/plan/testing/chain_plan.h"
#include "common/plan/worker_part.h"
#include "common/testing/status_matchers.h"
#include "worker/tasks/task_leases.h"
#include "worker/tasks/worker_task.h"

#include <algorithm>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_split.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kBytes = 64;
constexpr DeviceRank kDevice = 0;

// One device copies its eight elements from one storage to the other, and gives the first one up.
std::shared_ptr<const LaidOutPart> PartThatGivesItsSourceUp() {
  const Plan move = ChainPlan(TensorOf("[8]: x=1 on a.0 [-] -> x=1 on a.0 [-]"), {},
                              {.copies = {{.slice_class = 0, .device = 0}}});
  Course<Plan> course{.tensors = {0}, .releases_source = true};
  course.steps.push_back({.move = std::make_shared<const Plan>(move)});
  auto slicing = Slicing::Create(move.tensors());
  CHECK_OK(slicing);
  const auto plan = Plan::Create(
      {.tensors = move.spec().tensors,
       .slicing = std::make_shared<const Slicing>(*std::move(slicing)),
       .courses = std::make_shared<const std::vector<Course<Plan>>>(std::vector{std::move(course)}),
       .binding = BindingMode::kInPlace});
  CHECK_OK(plan);
  auto parts = CutParts(*plan, {plan->tensors().devices()});
  CHECK_OK(parts);
  auto part = LaidOutPart::Create(std::make_shared<const WorkerPart>(parts->front()));
  CHECK_OK(part);
  return *std::move(part);
}

// The two letters each that Linux has for how this process maps an address.
std::vector<std::string> FlagsOfMapping(const void* address) {
  std::ifstream mappings("/proc/self/smaps");
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  bool is_wanted = false;
  for (std::string line; std::getline(mappings, line);) {
    uintptr_t begin = 0, end = 0;
    if (sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " ", &begin, &end) == 2) {
      is_wanted = begin <= wanted && wanted < end;
    } else if (is_wanted && line.starts_with("VmFlags: ")) {
      return absl::StrSplit(line.substr(9), ' ', absl::SkipEmpty());
    }
  }
  return {};
}

class ReleasedSourceTest : public testing::Test {
 protected:
  ReleasedSourceTest() {
    request_.source_storage = "weights";
    request_.destination_storage = "generation";
    request_.create_destination = true;
    CHECK_OK(storages_.Create({"weights", {"a", 0}}, kBytes));
  }

  WorkerTask Begin() {
    auto leases = TaskLeases::Take(request_, *part_, storages_);
    CHECK_OK(leases);
    WorkerTask task(request_, part_, *std::move(leases), absl::ZeroDuration());
    task.OnAccepted();
    return task;
  }
  void End(WorkerTask& task, const absl::Status& status, bool released) {
    task.OnDeviceDone({.device = kDevice, .status = status});
    report_.set_code(static_cast<int32_t>(status.code()));
    if (released) task.OnSourcesReleased(std::vector<DeviceRank>{kDevice}, report_);
    task.OnReport(report_, absl::ZeroDuration());
  }
  std::optional<StorageState> StateOf(const std::string& name) {
    const auto status = storages_.Status({name, {"a", 0}});
    if (!status.ok()) return std::nullopt;
    return status->state;
  }

  StorageTable storages_{Arena::Pages::kSmall};
  const std::shared_ptr<const LaidOutPart> part_ = PartThatGivesItsSourceUp();
  StartRequest request_;
  v1::TaskReport report_;
};

TEST_F(ReleasedSourceTest, IsGoneWhenTheDestinationIsCommitted) {
  {
    WorkerTask task = Begin();
    EXPECT_EQ(StateOf("weights"), StorageState::kDirty);
    End(task, absl::OkStatus(), true);
    EXPECT_THAT(report_.released_sources(), ElementsAre("a.0"));
    EXPECT_EQ(StateOf("weights"), StorageState::kDirty);
    task.Resolve(std::vector<int32_t>{kDevice}, true);
    EXPECT_EQ(StateOf("weights"), std::nullopt);
    EXPECT_EQ(StateOf("generation"), StorageState::kReady);
  }
  EXPECT_EQ(StateOf("weights"), std::nullopt);
}

TEST_F(ReleasedSourceTest, StaysDirtyWhenTheTaskFailsAfterwards) {
  {
    WorkerTask task = Begin();
    End(task, absl::UnavailableError("a peer is gone"), true);
    task.Resolve(std::vector<int32_t>{kDevice}, false);
  }
  EXPECT_EQ(StateOf("weights"), StorageState::kDirty);
  EXPECT_EQ(StateOf("generation"), std::nullopt);
  EXPECT_THAT(TaskLeases::Take(request_, *part_, storages_).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("DIRTY")));
}

TEST_F(ReleasedSourceTest, IsIntactWhenTheTaskFailsBefore) {
  {
    WorkerTask task = Begin();
    End(task, absl::UnavailableError("a peer is gone"), false);
    task.Resolve(std::vector<int32_t>{kDevice}, false);
  }
  EXPECT_EQ(StateOf("weights"), StorageState::kReady);
  EXPECT_OK(TaskLeases::Take(request_, *part_, storages_).status());
}

TEST_F(ReleasedSourceTest, ItsDestinationIsFilledBySmallPages) {
  ASSERT_OK_AND_ASSIGN(const TaskLeases leases, TaskLeases::Take(request_, *part_, storages_));
  const void* const source = leases.BindSources(*part_).at(kDevice).tensor[0];
  if (!std::ranges::count(FlagsOfMapping(source), "hg")) GTEST_SKIP() << "no huge pages here";
  const void* const destination = leases.BindDestinations(*part_).at(kDevice).tensor[0];
  EXPECT_THAT(FlagsOfMapping(destination), AllOf(Contains("nh"), Not(Contains("hg"))));
}

TEST_F(ReleasedSourceTest, ADestinationOfOtherMemoryIsRefusedByName) {
  std::vector<std::byte> memory(kBytes);
  ASSERT_OK(storages_.Adopt({"generation", {"a", 0}}, Arena::Borrow(memory)));
  EXPECT_THAT(TaskLeases::Take(request_, *part_, storages_).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("destination storage \"generation\" of device a.0")));
  EXPECT_EQ(StateOf("weights"), StorageState::kReady);
}

}  // namespace
}  // namespace crossmesh
