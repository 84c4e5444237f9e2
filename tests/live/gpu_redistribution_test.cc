// Changes of layout inside one mesh of GPUs, by steps and with reductions, through daemons.

#include "client/memory/memory_client.h"
#include "common/base/check.h"
#include "common/mesh/gpu_host.h"
#include "common/mesh/manifest.h"
#include "common/testing/status_matchers.h"
#include "common/wire/tensor_codec.h"
#include "tests/live/gpu_fixture.h"
#include "tests/live/reshard_case.h"

#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kSumRows = 256;
constexpr int64_t kSumColumns = 512;

// Small whole numbers, whose sums are exact in any order.
float SummandOf(int64_t gpu, int64_t element) {
  return static_cast<float>((element * 7 + gpu * 13) % 101 - 50);
}
float SumOfAll(int64_t element) {
  float sum = 0;
  for (int64_t gpu = 0; gpu < kGpus; ++gpu) sum += SummandOf(gpu, element);
  return sum;
}

// Elements of a quarter of the sum that are not what they should be.
int64_t WrongSums(std::span<const std::byte> bytes, int64_t quarter) {
  const auto* const elements = reinterpret_cast<const float*>(bytes.data());
  constexpr int64_t kCount = kSumRows * kSumColumns / kGpus;
  int64_t wrong = 0;
  for (int64_t i = 0; i < kCount; ++i) {
    if (elements[i] != SumOfAll(quarter * kCount + i)) ++wrong;
  }
  return wrong;
}

// Four GPUs, of which each has a whole matrix of summands; each gets a quarter of the sum, by rows.
class GpuRedistributionTest : public GpuFixture {
 protected:
  void SetUp() override {
    const auto manifest = Manifest::Create(
        {{.name = "m", .shape = Shape::Create({{kSumRows, kSumColumns}}).value()}});
    CHECK_OK(manifest.status());
    manifest_ = *manifest;
    Start();
  }

  void MakeSums(const std::string& mesh) {
    MakeCase({.source = mesh,
              .source_layout = "[-, -]",
              .destination = mesh,
              .destination_layout = "[x*y, -]",
              .replica_axes = {}});
    spec_.set_strategy("redistribute");
    for (const char* axis : {"x", "y"}) {
      spec_.mutable_redistribution()->add_source_partial(axis);
    }
    for (const LiveGpuTiles& source : sources_) {
      source.Map([&](std::span<std::byte> memory) {
        auto* const elements = reinterpret_cast<float*>(memory.data());
        for (int64_t i = 0; i < kSumRows * kSumColumns; ++i) {
          elements[i] = SummandOf(source.number, i);
        }
      });
    }
  }

  void ExpectSums() {
    ASSERT_OK_AND_ASSIGN(const v1::Operation operation,
                         Execute(cluster_->controller_address(), spec_));
    ASSERT_EQ(operation.state(), v1::OPERATION_STATE_COMMITTED) << operation.ShortDebugString();
    for (const v1::TaskReport& worker : operation.report().workers()) {
      EXPECT_THAT(worker.gpu_libraries(), testing::Contains(HasSubstr("NCCL")));
    }
    for (LiveGpuTiles& destination : destinations_) {
      const DeviceId device = DeviceOf(destination.number);
      ASSERT_OK_AND_ASSIGN(MemoryClient memory, cluster_->Memory(device.host));
      ASSERT_OK_AND_ASSIGN(destination.storage, memory.OpenOnGpu("serving", ToString(device)));
      destination.Map([&](std::span<std::byte> bytes) {
        EXPECT_EQ(WrongSums(bytes, destination.number), 0) << ToString(device);
      });
    }
  }

  void ExpectMetric(const std::string& metric, double value) {
    double found = -1;
    EXPECT_TRUE(WaitUntil(absl::Seconds(20),
                          [&] {
                            const absl::StatusOr<double> now =
                                cluster_->Metric("node-0", metric, "");
                            found = now.value_or(-1);
                            return found == value;
                          }))
        << metric << ": " << found;
  }
};

TEST_F(GpuRedistributionTest, SumsOfAllGpusComeToShardsAndAreCounted) {
  MakeSums(absl::StrCat("x=2,y=2 on ", kDevices));
  // As host memory, by a network that is not described, and as what they are.
  ExpectSums();
  ASSERT_OK_AND_ASSIGN(const Topology network, GpuHosts("h100x8", {"node-0", "node-1"}));
  *spec_.mutable_topology() = ToProto(network);
  ExpectSums();
  // Of both, at two GPUs, each a quarter of four matrices.
  ExpectMetric("crossmesh_worker_reduced_bytes_total", 2 * 2 * kSumRows * kSumColumns * 4);
}

// Of three GPUs and host memory, in the place of the fourth.
TEST_F(GpuRedistributionTest, SumsOfGpusAndHostMemoryComeToBoth) {
  MakeSums(absl::StrCat("x=2,y=2 on ", kDevices));
  v1::ReshardSpec mixed = spec_;
  ASSERT_OK_AND_ASSIGN(const Mesh mesh, ParseMesh("x=2,y=2 on node-0.0-1,node-1.1-2"));
  for (v1::ReshardSide* const side : {mixed.mutable_source(), mixed.mutable_destination()}) {
    *side->mutable_inline_mesh() = ToProto(mesh);
  }
  mixed.mutable_destination()->set_storage("new");
  mixed.set_create_destination(true);
  ASSERT_OK_AND_ASSIGN(MemoryClient memory, cluster_->Memory("node-0"));
  ASSERT_OK_AND_ASSIGN(const MappedStorage summands,
                       memory.Create("training", "node-0.0", kSumRows * kSumColumns * 4));
  auto* const elements = reinterpret_cast<float*>(summands.bytes().data());
  for (int64_t i = 0; i < kSumRows * kSumColumns; ++i) elements[i] = SummandOf(1, i);
  ASSERT_OK_AND_ASSIGN(const v1::Operation operation,
                       Execute(cluster_->controller_address(), mixed));
  ASSERT_EQ(operation.state(), v1::OPERATION_STATE_COMMITTED) << operation.ShortDebugString();
  ASSERT_OK_AND_ASSIGN(const MappedStorage of_host, memory.Open("new", "node-0.0"));
  EXPECT_EQ(WrongSums(of_host.bytes(), 0), 0);
  // In the order of the mesh: GPUs 0, 2 and 3.
  for (const std::pair<int, int>& of : {std::pair(0, 1), std::pair(2, 2), std::pair(3, 3)}) {
    const DeviceId device = DeviceOf(of.first);
    ASSERT_OK_AND_ASSIGN(MemoryClient of_worker, cluster_->Memory(device.host));
    LiveGpuTiles tiles{.number = of.first};
    ASSERT_OK_AND_ASSIGN(tiles.storage, of_worker.OpenOnGpu("new", ToString(device)));
    tiles.Map([&](std::span<std::byte> bytes) {
      EXPECT_EQ(WrongSums(bytes, of.second), 0) << ToString(device);
    });
  }
  // The next one, of GPUs alone.
  ExpectSums();
}

}  // namespace
}  // namespace crossmesh
