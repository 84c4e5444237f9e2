// What becomes of a redistribution on GPUs of the stand-in, of its communicator and of its memory
// when it cannot go on; and that the ranks run the next one.

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/plan/worker_part.h"
#include "planner/redistribute/planning/testing/course_requests.h"
#include "tests/standin/rank_processes.h"
#include "worker/courses/testing/summands.h"
#include "worker/executor/prepared_part.h"
#include "worker/executor/testing/tile_memory.h"
#include "worker/gpu/executor/gpu_legs.h"
#include "worker/gpu/executor/testing/executor_rank.h"

#include <csignal>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/functional/function_ref.h>
#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kSummers = 3;
constexpr CompiledPart::Options kOfSummers = {.staging_bytes = 1 << 20};

// Of a device's part of a plan.
absl::StatusOr<GpuTaskSpec> SpecOfPart(const Plan& plan, DeviceRank device,
                                       const TileMemory& memory, ExecutorRank& rank,
                                       uint32_t instance = 0) {
  std::vector<std::vector<DeviceId>> each_alone;
  for (const DeviceId& name : plan.tensors().devices()) each_alone.push_back({name});
  ASSIGN_OR_RETURN(std::vector<WorkerPart> parts, CutParts(plan, each_alone));
  ASSIGN_OR_RETURN(auto part, PreparedPart::Create(
                                  std::make_shared<const WorkerPart>(std::move(parts[device]))));
  return rank.Spec(std::move(part), TilesOf(memory, device), kOfSummers, instance);
}

// Three GPUs sum a matrix that each has a summand of, slab by slab: reduced in parts, then
// gathered.
struct SummersCase {
  SummersCase() : request(Request()), plan(PlanOf(request).value()), memory(plan) {
    CHECK(plan.has_courses());
    CHECK_GT(plan.courses()[0].instances, 4);
    FillSummands(request.request.redistribution, plan, memory);
  }

  static CourseRequest Request() {
    const std::vector<Axis> axes = {{"x", kSummers}};
    const RedistributionRequest sums{
        .axes = axes,
        .shape = Shape::Create({{48, 96}}).value(),
        .item_bytes = 4,
        .source = EndOf(*ParseLayout("[-, -]"), axes, std::vector<std::string>{"x"}).value(),
        .destination = EndOf(*ParseLayout("[-, -]"), axes).value()};
    CourseRequest made = RequestOf(sums, {.devices_of_host = 1});
    PutOnGpus(made.request);
    made.sizes = {.array_bytes = 2048, .row_elements = 1};
    return made;
  }

  absl::StatusOr<GpuTaskSpec> SpecOf(ExecutorRank& rank, DeviceRank device,
                                     uint32_t instance = 0) const {
    ASSIGN_OR_RETURN(GpuTaskSpec spec, SpecOfPart(plan, device, memory, rank, instance));
    // Longer than a rank may have to wait for a processor.
    spec.stall_limit = absl::Seconds(1);
    return spec;
  }

  const CourseRequest request;
  const Plan plan;
  const TileMemory memory;
};

using DisturbSums = absl::FunctionRef<absl::Status(ExecutorRank&, int number, GpuTaskSpec&)>;

absl::Status RunNextSums(ExecutorRank& rank, int number) {
  const SummersCase sums;
  ASSIGN_OR_RETURN(GpuTaskSpec spec, sums.SpecOf(rank, number, 1));
  RETURN_IF_ERROR(rank.Run(std::move(spec)).status());
  return CheckSums(sums.request.request.redistribution, sums.plan, sums.memory, number);
}

// What each rank is told; another error if not all of them run the next one right, on another
// communicator, or if memory is missing.
std::vector<std::string> RunDisturbedSums(DisturbSums disturb) {
  return RunRanks(kSummers, [&](int number, Meeting& meeting) -> absl::Status {
    ASSIGN_OR_RETURN(const auto rank, ExecutorRank::Create(number, {}));
    RETURN_IF_ERROR(rank->JoinAll(kSummers, number, meeting));
    absl::Status told;
    {
      const SummersCase sums;
      ASSIGN_OR_RETURN(GpuTaskSpec spec, sums.SpecOf(*rank, number));
      told = disturb(*rank, number, spec);
      if (told.ok()) told = rank->Run(std::move(spec)).status();
    }
    RETURN_IF_ERROR(rank->AwaitStopped());
    RETURN_IF_ERROR(rank->stand_in().SetFaults(""));
    RETURN_IF_ERROR(rank->JoinAll(kSummers, number, meeting));
    RETURN_IF_ERROR(RunNextSums(*rank, number));
    RETURN_IF_ERROR(rank->Close());
    return told;
  });
}

const auto kSumsStalled = AllOf(HasSubstr("UNAVAILABLE: stalled"), HasSubstr("of leg "));

TEST(GpuCourseFaultsTest, AStallInSomeLegIsNoticedByAll) {
  const auto told = RunDisturbedSums([](ExecutorRank& rank, int number, GpuTaskSpec&) {
    return rank.stand_in().SetFaults(number == 1 ? "stall_at=22" : "");
  });
  EXPECT_THAT(told, Each(kSumsStalled));
}

TEST(GpuCourseFaultsTest, ACommunicatorThatFailsFailsTheTaskWithItsWords) {
  const auto told = RunDisturbedSums([](ExecutorRank& rank, int number, GpuTaskSpec&) {
    return rank.stand_in().SetFaults(number == 2 ? "async_error_at=22" : "");
  });
  EXPECT_THAT(told, ElementsAre(kSumsStalled, kSumsStalled,
                                AllOf(HasSubstr("UNAVAILABLE"), HasSubstr("async_error_at"))));
}

TEST(GpuCourseFaultsTest, ATaskThatIsCancelledBetweenLegsGivesBackItsArrays) {
  const auto told =
      RunDisturbedSums([](ExecutorRank& rank, int number, GpuTaskSpec& spec) -> absl::Status {
        if (number != 0) return absl::OkStatus();
        AwaitedReport awaited;
        RETURN_IF_ERROR(rank.executor().Start(spec, awaited));
        rank.RunUntil([&] { return rank.executor().StepsDone(spec.key).value_or(9) > 2; });
        rank.executor().Cancel(spec.key, absl::CancelledError("enough"));
        rank.RunUntil([&] { return awaited.is_there(); });
        spec.binding.reset();
        return awaited.status();
      });
  EXPECT_THAT(told, ElementsAre("CANCELLED: enough", kSumsStalled, kSumsStalled));
}

TEST(GpuCourseFaultsTest, ATaskThatIsLateEnds) {
  const auto told = RunDisturbedSums([](ExecutorRank& rank, int number, GpuTaskSpec& spec) {
    if (number != 0) return absl::OkStatus();
    spec.deadline = absl::Milliseconds(300);
    return rank.stand_in().SetFaults("stall_at=14");
  });
  EXPECT_THAT(told, ElementsAre(AllOf(HasSubstr("DEADLINE_EXCEEDED"), HasSubstr("of leg ")),
                                kSumsStalled, kSumsStalled));
}

// Nothing harms the communicator: the same task again is right.
TEST(GpuCourseFaultsTest, CorruptBytesAreDataLossOfTheirStep) {
  const auto told = RunRanks(kSummers, [](int number, Meeting& meeting) -> absl::Status {
    ASSIGN_OR_RETURN(const auto rank, ExecutorRank::Create(number, {}));
    RETURN_IF_ERROR(rank->JoinAll(kSummers, number, meeting));
    absl::Status told;
    {
      const SummersCase sums;
      ASSIGN_OR_RETURN(GpuTaskSpec spec, sums.SpecOf(*rank, number));
      if (number == 1) RETURN_IF_ERROR(rank->stand_in().SetFaults("corrupt_at=22"));
      told = rank->Run(std::move(spec)).status();
    }
    RETURN_IF_ERROR(RunNextSums(*rank, number));
    RETURN_IF_ERROR(rank->Close());
    return told;
  });
  EXPECT_THAT(told, testing::Contains(AllOf(HasSubstr("DATA_LOSS: step "), HasSubstr("relay "))));
  EXPECT_THAT(told, Each(AnyOf(IsEmpty(), HasSubstr("DATA_LOSS: step "))));
}

TEST(GpuCourseFaultsTest, TheLossOfAProcessIsNoticedByTheOthers) {
  const auto told = RunRanks(kSummers, [](int number, Meeting& meeting) -> absl::Status {
    ASSIGN_OR_RETURN(const auto rank, ExecutorRank::Create(number, {}));
    RETURN_IF_ERROR(rank->JoinAll(kSummers, number, meeting));
    absl::Status told;
    {
      const SummersCase sums;
      ASSIGN_OR_RETURN(GpuTaskSpec spec, sums.SpecOf(*rank, number));
      if (number == 2) {
        AwaitedReport never;
        RETURN_IF_ERROR(rank->executor().Start(spec, never));
        rank->RunUntil([&] { return rank->executor().StepsDone(spec.key).value_or(9) > 2; });
        kill(getpid(), SIGKILL);
      }
      told = rank->Run(std::move(spec)).status();
    }
    RETURN_IF_ERROR(rank->AwaitStopped());
    RETURN_IF_ERROR(rank->Close());
    return told;
  });
  EXPECT_THAT(told, ElementsAre(kSumsStalled, kSumsStalled, "killed by signal 9"));
}

TEST(GpuCourseFaultsTest, WithoutMemoryForArraysNothingIsBound) {
  const auto told = RunRanks(1, [](int number, Meeting&) -> absl::Status {
    ASSIGN_OR_RETURN(const auto rank, ExecutorRank::Create(number, {}));
    absl::Status told;
    {
      const SummersCase sums;
      RETURN_IF_ERROR(rank->stand_in().SetFaults("out_of_memory_at=1"));
      told = sums.SpecOf(*rank, 0).status();
    }
    RETURN_IF_ERROR(rank->stand_in().SetFaults(""));
    RETURN_IF_ERROR(rank->Close());
    return told;
  });
  EXPECT_THAT(told, ElementsAre(AllOf(HasSubstr("RESOURCE_EXHAUSTED"),
                                      HasSubstr("arrays between steps"), HasSubstr("h0.0"))));
}

// Planners of GPUs make none.
TEST(GpuCourseFaultsTest, ARingOfSumsIsRefused) {
  const auto told = RunRanks(1, [](int number, Meeting&) -> absl::Status {
    ASSIGN_OR_RETURN(const auto rank, ExecutorRank::Create(number, {}));
    absl::Status told = absl::NotFoundError("a ring");
    for (uint64_t seed = 1; absl::IsNotFound(told); ++seed) {
      ASSIGN_OR_RETURN(const Plan plan, PlanOf(RandomSumRingRequest(seed)));
      if (!plan.courses()[0].steps[0].adds_own) continue;
      const TileMemory memory(plan);
      told = SpecOfPart(plan, 0, memory, *rank).status();
    }
    RETURN_IF_ERROR(rank->Close());
    return told;
  });
  EXPECT_THAT(told, ElementsAre(AllOf(HasSubstr("INVALID_ARGUMENT"),
                                      HasSubstr("found some that go round a ring"))));
}

}  // namespace
}  // namespace crossmesh
