#include "client/client.h"
#include "common/base/check.h"
#include "common/mesh/gpu_host.h"
#include "common/mesh/manifest.h"
#include "common/testing/status_matchers.h"
#include "common/wire/tensor_codec.h"
#include "tests/live/gpu_fixture.h"
#include "tests/live/reshard_case.h"
#include "tests/standin/stand_in.h"

#include <array>
#include <cstdint>
#include <string>
#include <utility>

#include <absl/status/statusor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// What the controller knows of GPUs, and the ways that they go.
class GpuStrategiesTest : public GpuFixture {
 protected:
  void ExpectCommitsByM2n(uint8_t version) {
    FillSources(version);
    ASSERT_OK_AND_ASSIGN(const v1::Operation operation,
                         Execute(cluster_->controller_address(), spec_));
    ASSERT_EQ(operation.state(), v1::OPERATION_STATE_COMMITTED) << operation.ShortDebugString();
    for (const v1::TaskReport& worker : operation.report().workers()) {
      EXPECT_THAT(worker.gpu_libraries(), Contains(HasSubstr("libnccl_m2n.so")));
    }
    ExpectDestinations(version);
  }
};

TEST_F(GpuStrategiesTest, ACalibrationTakesThePlaceOfWhatWasAssumed) {
  Start();
  ASSERT_OK_AND_ASSIGN(Client client, Client::Connect(cluster_->controller_address(), {}));
  // The other devices of these hosts have no worker.
  ASSERT_OK_AND_ASSIGN(const Topology assumed, GpuHosts("l40s-pcie", {"node-0", "node-1"}));
  v1::SetNetworkRequest described;
  *described.mutable_topology() = ToProto(assumed);
  ASSERT_OK(client.SetNetwork(described));
  v1::CalibrateGpusRequest request;
  request.set_keep_description(true);
  ASSERT_OK_AND_ASSIGN(const v1::CalibrateGpusResponse looked, client.CalibrateGpus(request));
  EXPECT_EQ(looked.network().revision(), 1);
  EXPECT_EQ(client.GetNetwork()->revision(), 1);
  request.set_keep_description(false);
  ASSERT_OK_AND_ASSIGN(const v1::CalibrateGpusResponse response, client.CalibrateGpus(request));
  EXPECT_THAT(FromProto(response.before().topology()), IsOkAndHolds(assumed));
  EXPECT_EQ(response.network().revision(), 2);
  ASSERT_OK_AND_ASSIGN(const Topology now, FromProto(client.GetNetwork()->topology()));
  // The stand-in has a group in progress for 50 us at least.
  EXPECT_GE(now.gpu_costs().group_ns.value, 50'000);
  for (const GpuCost& cost :
       {now.gpu_costs().launch_ns, now.gpu_costs().group_ns, now.gpu_costs().message_ns}) {
    EXPECT_THAT(cost.source, AllOf(StartsWith("measured on "), HasSubstr(" at 2")));
  }
  for (int number = 0; number < kGpus; ++number) {
    const HostGpu& gpu = *now.FindGpu(DeviceOf(number));
    EXPECT_THAT(gpu.copy_source, StartsWith("measured on "));
    EXPECT_THAT(gpu.link_source, StartsWith("measured on "));
    EXPECT_NE(gpu.link_out_bytes_per_second,
              assumed.FindGpu(DeviceOf(number))->link_out_bytes_per_second);
  }
  EXPECT_EQ(now.FindGpu({"node-0", 0})->copy_source, "assumed");
  EXPECT_THAT(response.warnings(), Contains("GPU node-0.0: not measured, it stays as it was"));
  // Operations have the GPUs again.
  MakeCase();
  for (const uint8_t version : {1, 2}) ExpectCommits(version);
}

// From two GPUs of a worker to two of the other, each cut its own way, by NVIDIA's own reshard.
ReshardOptions AcrossWorkers() {
  return {.source = "fsdp=2 on node-0.1-2",
          .source_layout = "[fsdp, ...]",
          .destination = "model=2 on node-1.1-2",
          .destination_layout = "[..., model]",
          .replica_axes = {}};
}

TEST_F(GpuStrategiesTest, NcclM2nMovesTensorsAgainAndAgain) {
  manifest_ = EvenTensors();
  Start();
  MakeCase(AcrossWorkers());
  ASSERT_OK_AND_ASSIGN(const Topology network, GpuHosts("h100x8", {"node-0", "node-1"}));
  *spec_.mutable_topology() = ToProto(network);
  spec_.set_strategy("relay");
  ExpectCommits(1);  // on a communicator of its own
  spec_.set_strategy("m2n");
  for (const uint8_t version : {2, 3}) ExpectCommitsByM2n(version);
  spec_.set_strategy("relay");
  ExpectCommits(4);
}

// One tensor of so few bytes that one group of calls takes less than the fixed costs of a step.
Manifest FewBytes() {
  constexpr std::array<int64_t, 2> kLengths = {16, 8};
  absl::StatusOr<Manifest> manifest =
      Manifest::Create({{.name = "router.weight",
                         .type = DataType::kF32,
                         .shape = Shape::Create(kLengths).value()}});
  CHECK_OK(manifest.status());
  return *std::move(manifest);
}

TEST_F(GpuStrategiesTest, NcclM2nIsChosenByItselfWhereAllWorkersHaveIt) {
  manifest_ = FewBytes();
  Start();
  MakeCase(AcrossWorkers());
  ASSERT_OK_AND_ASSIGN(const Topology network, GpuHosts("h100x8", {"node-0", "node-1"}));
  *spec_.mutable_topology() = ToProto(network);
  ExpectCommitsByM2n(1);
}

TEST_F(GpuStrategiesTest, WithoutNcclM2nItsStrategySaysWhy) {
  manifest_ = EvenTensors();
  Start(StandInDriverPath(), "libnccl_m2n-that-is-not-there.so");
  MakeCase(AcrossWorkers());
  ASSERT_OK_AND_ASSIGN(const Topology network, GpuHosts("h100x8", {"node-0", "node-1"}));
  *spec_.mutable_topology() = ToProto(network);
  spec_.set_strategy("m2n");
  FillSources(1);
  ASSERT_OK_AND_ASSIGN(const v1::Operation operation,
                       Execute(cluster_->controller_address(), spec_));
  EXPECT_EQ(operation.state(), v1::OPERATION_STATE_FAILED);
  EXPECT_THAT(operation.error(),
              AllOf(HasSubstr("strategy m2n: NCCL M2N is not available: library "
                              "libnccl_m2n-that-is-not-there.so cannot be loaded")));
  spec_.clear_strategy();
  ExpectCommits(2);
}

}  // namespace
}  // namespace crossmesh
