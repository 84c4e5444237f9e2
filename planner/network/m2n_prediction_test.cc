#include "planner/network/m2n_prediction.h"

#include "common/base/check.h"
#include "common/mesh/gpu_host.h"
#include "common/plan/testing/tables.h"
#include "planner/network/gpu_costs.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

constexpr double kRateOfNic = 50e9;
constexpr double kRateOfLink = 450e9;
constexpr double kCopy = 1.34e12;
constexpr double kKernel = 8 * 20e9;  // of a channel, as assumed
constexpr double kPieceSeconds = (int64_t{256} << 10) / kRateOfNic;
constexpr double kGiB = int64_t{1} << 30;

// Of one tensor of 2^30 bytes, unless its text says another shape.
double Predict(const std::vector<std::string>& texts, int64_t tensors = 1) {
  std::vector<TensorText> all;
  for (const std::string& text : texts) all.push_back(TensorOf(text, DataType::kU8));
  const TensorTable table = TableOf(all);
  std::vector<Host> hosts;
  for (const std::string& name : table.hosts()) hosts.push_back(*GpuHost("h100x8", name));
  const auto network = GpuNetworkOf(table, *Topology::Create(std::move(hosts), {}));
  CHECK(network.has_value());
  std::vector<M2nTensors> alike;
  for (int32_t group = 0; group < std::ssize(table.groups()); ++group) {
    const auto transfer = M2nTransferOf(table, group);
    CHECK_OK(transfer);
    alike.push_back({.transfer = *transfer, .item_bytes = 1, .tensors = tensors});
  }
  return PredictM2n(*network, alike);
}

void ExpectNear(double seconds, double expected) {
  EXPECT_NEAR(seconds, expected, 1e-4 * expected);
}

constexpr char kOneToOne[] = "[32768, 32768]: x=1 on a.0 [-, -] -> y=1 on b.0 [-, -]";

TEST(M2nPredictionTest, PackingSendingAndUnpackingTakeTurns) {
  ExpectNear(Predict({kOneToOne}),
             2 * kGiB / kCopy + kGiB / kRateOfNic + gpu_costs::kM2nBatchSeconds + kPieceSeconds);
}

TEST(M2nPredictionTest, CopiesOfAHostPassOnWhatOneOfThemGot) {
  // Three copies by links take less time than the NIC.
  ExpectNear(Predict({"[32768, 32768]: x=1 on a.0 [-, -] -> r=4 on b.0-3 [-, -]"}),
             2 * kGiB / kCopy + kGiB / kRateOfNic + gpu_costs::kM2nBatchSeconds + kPieceSeconds);
}

TEST(M2nPredictionTest, SourcePartsAreDealtToTheCopiesOfAHost) {
  ExpectNear(Predict({"[32768, 32768]: x=2 on a.0-1 [x, -] -> r=2 on b.0-1 [-, -]"}),
             (kGiB / 2 + kGiB) / kCopy + kGiB / 2 / kRateOfNic + gpu_costs::kM2nBatchSeconds +
                 kPieceSeconds);
}

TEST(M2nPredictionTest, AHostPassesOnToTheNext) {
  ExpectNear(
      Predict({"[32768, 32768]: x=1 on a.0 [-, -] -> r=3 on b.0,c.0,d.0 [-, -]"}),
      2 * kGiB / kCopy + kGiB / kRateOfNic + gpu_costs::kM2nBatchSeconds + 3 * kPieceSeconds);
}

TEST(M2nPredictionTest, EachSourceReplicaHasItsShareOfTheCopies) {
  // One hop.
  ExpectNear(Predict({"[32768, 32768]: x=2 on a.0-1 [-, -] -> r=2 on b.0,c.0 [-, -]"}),
             2 * kGiB / kCopy + kGiB / kRateOfNic + gpu_costs::kM2nBatchSeconds + kPieceSeconds);
  // Further replicas do nothing.
  ExpectNear(Predict({"[32768, 32768]: x=3 on a.0-2 [-, -] -> y=1 on b.0 [-, -]"}),
             Predict({kOneToOne}));
}

TEST(M2nPredictionTest, OnOneHostCopyEnginesPutIntoEveryCopy) {
  ExpectNear(Predict({"[32768, 32768]: x=1 on a.0 [-, -] -> r=3 on a.1-3 [-, -]"}),
             2 * kGiB / kCopy + 3 * kGiB / kRateOfLink + gpu_costs::kM2nBatchSeconds);
}

TEST(M2nPredictionTest, OnOneHostInTheOtherOrderAKernelSends) {
  ExpectNear(Predict({"[32768, 32768]: x=1 on a.1 [-, -] -> y=1 on a.0 [-, -]"}),
             2 * kGiB / kCopy + kGiB / kKernel + gpu_costs::kM2nBatchSeconds);
}

TEST(M2nPredictionTest, OnlyPartsThatMeetAreSent) {
  ExpectNear(Predict({"[32768, 32768]: x=2 on a.0-1 [x, -] -> y=4 on b.0-3 [y, -]"}),
             (kGiB / 2 + kGiB / 4) / kCopy + kGiB / 2 / kRateOfNic + gpu_costs::kM2nBatchSeconds +
                 kPieceSeconds);
  ExpectNear(Predict({"[32768, 32768]: x=2 on a.0-1 [x, -] -> y=4 on b.0-3 [-, y]"}),
             (kGiB / 2 + kGiB / 4) / kCopy + kGiB / 2 / kRateOfNic + gpu_costs::kM2nBatchSeconds +
                 kPieceSeconds);
}

TEST(M2nPredictionTest, WhatDoesNotFitIntoTheBufferIsAnotherRun) {
  ExpectNear(Predict({kOneToOne}, 5), 5 * (2 * kGiB / kCopy + kGiB / kRateOfNic) +
                                          3 * (gpu_costs::kM2nBatchSeconds + kPieceSeconds));
}

TEST(M2nPredictionTest, TensorsOfAnotherTopologyWaitForThoseOfTheFirst) {
  const std::string other = "[32768, 32768]: x=1 on a.1 [-, -] -> y=1 on b.1 [-, -]";
  ExpectNear(Predict({kOneToOne, other}), 2 * Predict({kOneToOne}));
  // Of one topology they go together.
  ExpectNear(
      Predict({kOneToOne, "[32768, 16384]: x=1 on a.0 [-, -] -> y=1 on b.0 [-, -]"}),
      1.5 * (2 * kGiB / kCopy + kGiB / kRateOfNic) + gpu_costs::kM2nBatchSeconds + kPieceSeconds);
}

TEST(M2nPredictionTest, SmallTensorsTakeTheTimeOfTheirCopies) {
  ExpectNear(Predict({"[64]: x=1 on a.0 [-] -> y=1 on b.0 [-]"}, 1000),
             2 * 1000 * gpu_costs::kM2nCopySeconds + 64e3 / kRateOfNic +
                 gpu_costs::kM2nBatchSeconds + kPieceSeconds);
}

}  // namespace
}  // namespace crossmesh
