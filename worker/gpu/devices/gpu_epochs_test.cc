// What controllers of one epoch have had made, when one of another epoch comes.

#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/testing/status_matchers.h"
#include "worker/gpu/devices/testing/stand_in_gpus.h"
#include "worker/gpu/protocol/testing/gpu_requests_of_tests.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

// Orders of controllers for a communicator of one rank, a.0.
class GpuEpochsTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_OK(gpus_.Open()); }
  void TearDown() override {
    gpus_.Stop();
    EXPECT_EQ(gpus_.Violations(), "");
  }

  CommunicatorKey KeyOf(uint64_t epoch) {
    return {.ranks = {gpus_["a.0"].rank()}, .purpose = "relay", .epoch = epoch};
  }
  absl::StatusOr<GpuDevice*> Admit(const std::string& device, uint64_t epoch) {
    std::optional<absl::StatusOr<GpuDevice*>> admitted;
    gpus_.devices().Admit(gpus_[device].rank(), epoch, [&](auto gpu) { admitted = gpu; });
    gpus_.RunUntil([&] { return admitted.has_value(); });
    return *admitted;
  }
  absl::Status Create(uint64_t epoch, uint64_t ticket) {
    ASSIGN_OR_RETURN(GpuDevice* const gpu, Admit("a.0", epoch));
    ASSIGN_OR_RETURN(const GpuProcess::Reply minted, gpus_.Call(*gpu, MintCommunicatorIdRequest()));
    return gpus_
        .Call(*gpu, CreateCommunicatorRequest({.key = KeyOf(epoch), .ticket = ticket},
                                              minted.answer.minted().id()))
        .status();
  }
  // NotFound when nothing is left of it.
  absl::Status StopAtItsProcess(const CommunicatorKey& key) {
    return gpus_.Call(gpus_["a.0"], StopCommunicatorRequest(key, "test")).status();
  }

  StandInGpus gpus_{{"a.0", "a.1"}};
};

TEST_F(GpuEpochsTest, ALaterEpochStopsWhatEarlierOnesMadeAndTheyAreRefused) {
  int lost = 0;
  const ScopedLogSink sink(
      [&](const LogRecord& record) { lost += record.event == "communicator_lost"; });
  ASSERT_OK(Create(1, 1));
  ASSERT_OK(Admit("a.0", 2));
  EXPECT_THAT(StopAtItsProcess(KeyOf(1)), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_EQ(lost, 0);  // it was stopped
  EXPECT_THAT(Create(1, 2), StatusIs(absl::StatusCode::kAborted));
  EXPECT_OK(Create(2, 1));
}

TEST_F(GpuEpochsTest, AnEpochBeginsAtAllGpusOfAWorker) {
  ASSERT_OK(Create(1, 1));
  ASSERT_OK(Admit("a.1", 2));
  EXPECT_THAT(StopAtItsProcess(KeyOf(1)), StatusIs(absl::StatusCode::kNotFound));
}

// One that comes twice, and one that comes late.
TEST_F(GpuEpochsTest, AnOrderThatIsRefusedLeavesTheCommunicatorToBeStopped) {
  ASSERT_OK(Create(1, 7));
  EXPECT_THAT(Create(1, 8), StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_THAT(Create(1, 6), StatusIs(absl::StatusCode::kFailedPrecondition));
  ASSERT_OK(Admit("a.0", 2));
  EXPECT_THAT(StopAtItsProcess(KeyOf(1)), StatusIs(absl::StatusCode::kNotFound));
}

}  // namespace
}  // namespace crossmesh
