// Measurements of what the stand-in costs, in the processes of its GPUs.

#include "common/testing/send_signal.h"
#include "worker/gpu/process/testing/gpu_process_fixture.h"

#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/time/time.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

class MeasureGpuTest : public GpuProcessTest {
 protected:
  std::vector<Child*> StartRanks(int count) {
    std::vector<Child*> ranks;
    for (int number = 0; number < count; ++number) ranks.push_back(&StartUp(OptionsOf(number)));
    EXPECT_THAT(CreateCommunicator(ranks), Each(IsOk()));
    return ranks;
  }
  std::vector<std::shared_ptr<Result>> BeginAll(const std::vector<Child*>& ranks) {
    std::vector<std::shared_ptr<Result>> results;
    for (Child* rank : ranks) results.push_back(Begin(*rank, MeasureGpuRequest(KeyOf(ranks))));
    return results;
  }
  static v1::MeasureGpuResponse FiguresOf(const Result& result) {
    EXPECT_OK(result.status());
    return result.status().ok() ? (*result.reply)->answer.measured() : v1::MeasureGpuResponse();
  }
};

TEST_F(MeasureGpuTest, RanksMeasureWhatTheyExchange) {
  const std::vector<Child*> ranks = StartRanks(3);
  for (const auto& result : BeginAll(ranks)) {
    Await(*result);
    const v1::MeasureGpuResponse figures = FiguresOf(*result);
    EXPECT_THAT(figures.model(), HasSubstr("stand-in"));
    EXPECT_GT(figures.launch_ns(), 1);
    // The stand-in has a group in progress for 50 us at least.
    EXPECT_GE(figures.group_ns(), 50'000);
    EXPECT_GE(figures.message_ns(), 1);
    EXPECT_GT(figures.copy_bytes_per_second(), 1'000'000);
    EXPECT_GT(figures.exchange_bytes_per_second(), 1'000'000);
    EXPECT_EQ(figures.exchange_message_bytes(), 4 << 20) << "half of staging";
  }
  // The communicator can be used again, and memory was left as it should be.
  for (const auto& result : BeginAll(ranks)) {
    Await(*result);
    FiguresOf(*result);
  }
  EXPECT_THAT(DestroyCommunicator(ranks), Each(IsOk()));
}

TEST_F(MeasureGpuTest, ARankAloneExchangesNothing) {
  const std::vector<Child*> ranks = StartRanks(1);
  const auto result = BeginAll(ranks).front();
  Await(*result);
  const v1::MeasureGpuResponse figures = FiguresOf(*result);
  EXPECT_GE(figures.group_ns(), 50'000);
  EXPECT_GE(figures.message_ns(), 1);
  EXPECT_EQ(figures.exchange_bytes_per_second(), 0);
  EXPECT_EQ(figures.exchange_message_bytes(), 0);
}

TEST_F(MeasureGpuTest, WhatCannotBeMeasuredIsRefused) {
  const std::vector<Child*> ranks = StartRanks(2);
  CommunicatorKey other = KeyOf(ranks);
  other.purpose = "other";
  const auto unknown = Begin(*ranks[0], MeasureGpuRequest(other));
  Await(*unknown);
  EXPECT_THAT(unknown->status(), StatusIs(absl::StatusCode::kNotFound, HasSubstr("other@1[")));
  const auto timeless = Begin(*ranks[0], MeasureGpuRequest(KeyOf(ranks), absl::ZeroDuration()));
  Await(*timeless);
  EXPECT_THAT(timeless->status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("timeout")));
  // One waits for its peer, and another one comes.
  const auto first = Begin(*ranks[0], MeasureGpuRequest(KeyOf(ranks)));
  const auto second = Begin(*ranks[0], MeasureGpuRequest(KeyOf(ranks)));
  Await(*second);
  EXPECT_THAT(second->status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("found another one")));
  const auto peer = Begin(*ranks[1], MeasureGpuRequest(KeyOf(ranks)));
  Await(*first);
  Await(*peer);
  FiguresOf(*first);
  FiguresOf(*peer);
}

TEST_F(MeasureGpuTest, APeerThatDoesNotComeFailsItInTime) {
  const std::vector<Child*> ranks = StartRanks(2);
  const auto result = Begin(*ranks[0], MeasureGpuRequest(KeyOf(ranks), absl::Milliseconds(300)));
  Await(*result);
  EXPECT_THAT(result->status(),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("measurement")));
  // The process goes on, without the communicator.
  const auto again = Begin(*ranks[0], MeasureGpuRequest(KeyOf(ranks)));
  Await(*again);
  EXPECT_THAT(again->status(), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(MeasureGpuTest, ACommunicatorThatIsStoppedEndsIt) {
  const std::vector<Child*> ranks = StartRanks(2);
  const auto result = Begin(*ranks[0], MeasureGpuRequest(KeyOf(ranks)));
  const auto stopped = Begin(*ranks[0], StopCommunicatorRequest(KeyOf(ranks), "for a test"));
  Await(*result);
  EXPECT_THAT(result->status(), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("for a test")));
  Await(*stopped);
  EXPECT_OK(stopped->status());
}

}  // namespace
}  // namespace crossmesh
