#include "planner/network/gpu_steps.h"

#include "common/base/check.h"
#include "common/mesh/gpu_host.h"
#include "common/plan/testing/tables.h"
#include "planner/network/gpu_costs.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

constexpr double kNicRate = 50e9;
// As assumed.
constexpr double kAssumedStepSeconds = 60e-6;
constexpr double kAssumedMessageSeconds = 1e-6;
constexpr double kChannelRate = 20e9;
constexpr int64_t kMiB = int64_t{1} << 20;

// a.0, a.1, b.0 and c.0, in this order.
GpuNetwork Network() {
  std::vector<Host> hosts;
  for (const std::string name : {"a", "b", "c"}) hosts.push_back(*GpuHost("h100x8", name));
  const TensorTable table = TableOf({TensorOf("[8]: x=2 on a.0-1 [x] -> y=2 on b.0,c.0 [y]")});
  return *GpuNetworkOf(table, *Topology::Create(std::move(hosts), {}));
}

// One relay of these bytes down a chain from a.0, due all the time.
Routes Chain(int64_t bytes, const std::vector<DeviceRank>& devices) {
  Routes routes;
  routes.BeginRelay({.root = 0, .end = bytes, .due = {.begin = 0, .end = DueTime::kParts}});
  for (size_t i = 0; i < devices.size(); ++i) {
    routes.AddHop(i == 0 ? 0 : devices[i - 1], devices[i]);
    routes.hops.back().period = static_cast<int32_t>(i);
  }
  return routes;
}

const std::vector<int64_t> kNoCopies(4);

TEST(GpuStepsTest, AStepTakesAsLongAsItsFullestPort) {
  const StepsPrediction prediction = PredictSteps(Network(), Chain(64 * kMiB, {2}), kNoCopies,
                                                  {.chunk_bytes = 8 * kMiB, .periods = 8});
  EXPECT_EQ(prediction.steps, 8);
  EXPECT_EQ(prediction.messages, 8);
  EXPECT_EQ(prediction.message_bytes, 64 * kMiB);
  EXPECT_EQ(prediction.step_bytes, 8 * kMiB);
  EXPECT_DOUBLE_EQ(prediction.busiest_seconds, 64 * kMiB / kNicRate);
  EXPECT_NEAR(prediction.seconds,
              64 * kMiB / kNicRate + 8 * kAssumedMessageSeconds + kAssumedStepSeconds, 1e-12);
}

TEST(GpuStepsTest, CostsAreThoseOfTheDescription) {
  GpuNetwork network = Network();
  network.costs = {.launch_ns = {1'000, "x"},
                   .group_ns = {200'000, "x"},
                   .message_ns = {5'000, "x"},
                   .channel_bytes_per_second = {1'000'000'000, "x"}};
  const StepsPrediction issued =
      PredictSteps(network, Chain(kMiB, {2}), kNoCopies, {.chunk_bytes = kMiB / 16, .periods = 16});
  EXPECT_NEAR(issued.seconds, 17 * 202e-6, 1e-12);
  const StepsPrediction moved = PredictSteps(network, Chain(64 * kMiB, {2}), kNoCopies,
                                             {.chunk_bytes = 8 * kMiB, .periods = 8});
  EXPECT_NEAR(moved.seconds, 64 * kMiB / 4e9 + 8 * 5e-6 + 202e-6, 1e-9);
  const std::vector<int64_t> copied = {1, 0, 0, 0};
  EXPECT_NEAR(PredictSteps(network, {}, copied, {.chunk_bytes = kMiB, .periods = 1}).seconds,
              202e-6, 1e-9);
}

TEST(GpuStepsTest, AShortStepTakesAsLongAsItTakesToIssueIt) {
  const StepsPrediction prediction = PredictSteps(Network(), Chain(kMiB, {2}), kNoCopies,
                                                  {.chunk_bytes = kMiB / 16, .periods = 16});
  EXPECT_NEAR(prediction.seconds, 17 * kAssumedStepSeconds, 1e-12);
}

TEST(GpuStepsTest, AHopFurtherIsAStepLater) {
  const StepsPrediction prediction = PredictSteps(Network(), Chain(64 * kMiB, {2, 3}), kNoCopies,
                                                  {.chunk_bytes = 8 * kMiB, .periods = 8});
  EXPECT_EQ(prediction.steps, 9);
  EXPECT_EQ(prediction.step_bytes, 16 * kMiB) << "b.0 receives one and sends one";
}

TEST(GpuStepsTest, InsideAHostLinksAreUsed) {
  const StepsPrediction prediction = PredictSteps(Network(), Chain(64 * kMiB, {1}), kNoCopies,
                                                  {.chunk_bytes = 16 * kMiB, .periods = 4});
  EXPECT_DOUBLE_EQ(prediction.busiest_seconds, 64 * kMiB / 450e9);
  // In a communicator of several hosts it has four channels, which are not as fast as the link.
  EXPECT_NEAR(prediction.seconds,
              64 * kMiB / (4 * kChannelRate) + 4 * kAssumedMessageSeconds + kAssumedStepSeconds,
              1e-12);
}

TEST(GpuStepsTest, CopiesTakeTheTimeOfTheKernelsThatCopy) {
  const std::vector<int64_t> copied = {int64_t{1} << 34, 0, 0, 0};
  const StepsPrediction prediction =
      PredictSteps(Network(), {}, copied, {.chunk_bytes = kMiB, .periods = 1});
  EXPECT_NEAR(prediction.seconds, (int64_t{1} << 34) / 1.34e12 + kAssumedStepSeconds, 1e-12);
  EXPECT_EQ(prediction.copied_bytes, int64_t{1} << 34);
  EXPECT_EQ(PredictSteps(Network(), {}, kNoCopies, {.chunk_bytes = kMiB}).seconds, 0);
}

TEST(GpuStepsTest, TooManyChunksAreTakenToBeAlike) {
  const Routes routes = Chain(int64_t{1} << 38, {2});
  const StepSizes small = {.chunk_bytes = 64 << 10, .periods = 1 << 14};
  const StepsPrediction prediction = PredictSteps(Network(), routes, kNoCopies, small);
  EXPECT_EQ(prediction.messages, int64_t{1} << 22);
  EXPECT_NEAR(prediction.seconds,
              (int64_t{1} << 38) / kNicRate + (int64_t{1} << 22) * kAssumedMessageSeconds,
              0.01 * prediction.seconds);
}

TEST(GpuStepsTest, StepsAreAsLongAsStagingAllows) {
  constexpr int64_t kStep = gpu_costs::kStagingBytes / gpu_costs::kStepsInStaging;
  const Routes routes = Chain(int64_t{1} << 34, {2});
  const StepSizes sizes = ChooseStepSizes(Network(), routes, kNoCopies, 0);
  const StepsPrediction prediction = PredictSteps(Network(), routes, kNoCopies, sizes);
  EXPECT_LE(prediction.step_bytes, kStep);
  EXPECT_GE(sizes.chunk_bytes, 8 * kMiB);
  EXPECT_LE(prediction.seconds, 1.02 * prediction.busiest_seconds);
}

TEST(GpuStepsTest, AShortRunHasFewSteps) {
  const StepSizes sizes = ChooseStepSizes(Network(), Chain(kMiB, {2}), kNoCopies, 0);
  EXPECT_EQ(sizes.periods, 1);
  EXPECT_EQ(sizes.chunk_bytes, kMiB);
}

TEST(GpuStepsTest, DeepRoutesHaveSeveralSteps) {
  const StepSizes sizes = ChooseStepSizes(Network(), Chain(32 * kMiB, {2, 3}), kNoCopies, 0);
  EXPECT_GT(sizes.periods, 1) << "or the last hop would begin when the first is through";
}

TEST(GpuStepsTest, WhatAUserWantsIsKept) {
  EXPECT_EQ(ChooseStepSizes(Network(), Chain(32 * kMiB, {2}), kNoCopies, kMiB).chunk_bytes, kMiB);
}

}  // namespace
}  // namespace crossmesh
