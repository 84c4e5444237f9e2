// Tensors that NCCL M2N moves between GPUs of the stand-in, ranks in processes of their own: every
// element arrives and is hashed as always, and a call that fails is the end of M2N in its process.

#include "common/base/byte_count.h"
#include "common/base/status_macros.h"
#include "common/plan/testing/random_source.h"
#include "tests/standin/rank_processes.h"
#include "worker/executor/testing/tile_memory.h"
#include "worker/gpu/communicators/nccl_communicator.h"
#include "worker/gpu/compiler/testing/random_compiled_parts.h"
#include "worker/gpu/device/gpu_memory.h"
#include "worker/gpu/executor/gpu_legs.h"
#include "worker/gpu/executor/testing/executor_rank.h"
#include "worker/gpu/executor/testing/tiles_on_gpu.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>
#include <absl/time/time.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kM2nRanks = 8;

// A communicator of all ranks that the plan has, for this case alone.
absl::Status JoinDevices(ExecutorRank& rank, int number, int64_t devices, Meeting& meeting) {
  meeting.Wait();
  if (number == 0) {
    ASSIGN_OR_RETURN(const std::string minted, MintId(rank.stand_in().nccl()));
    std::memcpy(meeting.id.internal, minted.data(), minted.size());
  }
  meeting.Wait();
  if (number >= devices) return absl::OkStatus();
  return rank.Join(static_cast<int>(devices), number,
                   std::string(meeting.id.internal, sizeof(meeting.id.internal)));
}

absl::Status EndCommunicator(ExecutorRank& rank) {
  RETURN_IF_ERROR(rank.Finalize());
  return rank.AwaitStopped();
}

absl::Status RunM2nCase(ExecutorRank& rank, int number, Meeting& meeting, RandomSource& random) {
  const Plan plan = RandomM2n(random);
  ASSIGN_OR_RETURN(const CompiledParts parts, RandomCompiledParts(random, plan));
  RETURN_IF_ERROR(JoinDevices(rank, number, std::ssize(parts), meeting));
  if (number >= std::ssize(parts)) return absl::OkStatus();
  const TileMemory memory(plan);
  {
    ASSIGN_OR_RETURN(const TilesOnGpu tiles,
                     TilesOnGpu::Create(rank.gpu(), plan, number, memory, random));
    for (const uint32_t instance : {0, 1}) {
      ASSIGN_OR_RETURN(GpuTaskSpec spec, rank.Spec(parts[number], tiles.gpu(), instance));
      ASSIGN_OR_RETURN(const TaskReport report, rank.Run(std::move(spec)));
      const int64_t bytes = plan.tensors().BytesOf(Side::kDestination, number);
      if (report.received_bytes != bytes) {
        return absl::InternalError(
            absl::StrCat("received bytes: expected ", bytes, ", found ", report.received_bytes));
      }
      for (const DeviceReport& device : report.devices) {
        if (device.bytes != bytes) return absl::InternalError("bytes of a device");
      }
    }
    tiles.Fetch();
  }
  RETURN_IF_ERROR(memory.CheckDestination(number));
  RETURN_IF_ERROR(memory.CheckUntouched());
  return EndCommunicator(rank);
}

TEST(GpuExecutorM2n, EveryElementOfRandomTensorsArrives) {
  const std::vector<std::string> results =
      RunRanks(kM2nRanks, [](int number, Meeting& meeting) -> absl::Status {
        ASSIGN_OR_RETURN(const auto rank, ExecutorRank::Create(number, {}));
        RETURN_IF_ERROR(RunRandomCases(1, 40, [&](RandomSource& random) {
          return RunM2nCase(*rank, number, meeting, random);
        }));
        return rank->Close();
      });
  EXPECT_THAT(results, Each(IsEmpty()));
}

// Rank 0 has one of the faults, in a plan from one device to others.
std::vector<std::string> RunWith(const std::string& faults) {
  return RunRanks(2, [&](int number, Meeting& meeting) -> absl::Status {
    ASSIGN_OR_RETURN(const auto rank, ExecutorRank::Create(number, {}));
    RandomSource random(7);
    Plan plan = RandomM2n(random);
    while (plan.tensors().devices().size() != 2) plan = RandomM2n(random);
    ASSIGN_OR_RETURN(const CompiledParts parts,
                     CompiledPartsOf(plan, {.staging_bytes = int64_t{1} << 20}));
    RETURN_IF_ERROR(JoinDevices(*rank, number, 2, meeting));
    const TileMemory memory(plan);
    ASSIGN_OR_RETURN(const TilesOnGpu tiles,
                     TilesOnGpu::Create(rank->gpu(), plan, number, memory, random));
    ASSIGN_OR_RETURN(GpuTaskSpec spec, rank->Spec(parts[number], tiles.gpu()));
    spec.stall_limit = absl::Seconds(2);  // far above what a busy machine takes for a step
    if (number == 0) RETURN_IF_ERROR(rank->stand_in().SetFaults(faults));
    const absl::Status told = rank->Run(spec).status();
    RETURN_IF_ERROR(rank->AwaitStopped());
    if (rank->m2n().failure().ok()) return absl::InternalError("M2N has not failed");
    if (!rank->stand_in().Violations().empty()) {
      return absl::InternalError(rank->stand_in().Violations().front());
    }
    return told;
  });
}

TEST(GpuExecutorM2n, ACallThatFailsIsTheEndOfTheCommunicatorAndOfM2nInTheProcess) {
  EXPECT_THAT(RunWith("m2n_fails_at=1"),
              // Told by the call, or by the communicator that it has ended before.
              ElementsAre(AllOf(HasSubstr("UNAVAILABLE: "),
                                HasSubstr("communicator test, rank 0 of 2: ncclM2nGroupEnd: "),
                                HasSubstr("injected fault m2n_fails_at")),
                          HasSubstr("UNAVAILABLE: stalled, nothing was done")));
}

TEST(GpuExecutorM2n, ARankThatIsSilentIsTheEndOfM2nAtTheOthers) {
  EXPECT_THAT(RunWith("stall_at=2"), Each(HasSubstr("UNAVAILABLE: stalled, nothing was done")));
}

TEST(GpuExecutorM2n, BytesThatChangeOnTheWayAreFoundByTheirHashes) {
  const std::vector<std::string> results =
      RunRanks(2, [](int number, Meeting& meeting) -> absl::Status {
        ASSIGN_OR_RETURN(const auto rank, ExecutorRank::Create(number, {}));
        RandomSource random(7);
        Plan plan = RandomM2n(random);
        while (plan.tensors().devices().size() != 2) plan = RandomM2n(random);
        ASSIGN_OR_RETURN(const CompiledParts parts,
                         CompiledPartsOf(plan, {.staging_bytes = int64_t{1} << 20}));
        RETURN_IF_ERROR(JoinDevices(*rank, number, 2, meeting));
        const TileMemory memory(plan);
        ASSIGN_OR_RETURN(const TilesOnGpu tiles,
                         TilesOnGpu::Create(rank->gpu(), plan, number, memory, random));
        ASSIGN_OR_RETURN(GpuTaskSpec spec, rank->Spec(parts[number], tiles.gpu()));
        // The first is the agreement.
        if (number == 0) RETURN_IF_ERROR(rank->stand_in().SetFaults("corrupt_at=2"));
        const absl::Status told = rank->Run(spec).status();
        RETURN_IF_ERROR(EndCommunicator(*rank));
        return told;
      });
  EXPECT_THAT(results, AllOf(testing::Contains(HasSubstr("DATA_LOSS: ")),
                             Each(AnyOf(IsEmpty(), HasSubstr("DATA_LOSS: ")))));
}

}  // namespace
}  // namespace crossmesh
