#include "common/mesh/gpu_host.h"

#include "common/testing/status_matchers.h"

#include <absl/status/status.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using testing::HasSubstr;

TEST(GpuHostTest, EveryPresetIsAHostThatANetworkMayHave) {
  for (const std::string& preset : GpuHostPresets()) {
    ASSERT_OK_AND_ASSIGN(const Host host, GpuHost(preset, "node-a"));
    EXPECT_EQ(host.name, "node-a");
    EXPECT_OK(Topology::Create({host}, {})) << preset;
  }
}

TEST(GpuHostTest, AnH100HasANicOfItsOwn) {
  ASSERT_OK_AND_ASSIGN(const Host host, GpuHost("h100x8", "a"));
  ASSERT_EQ(host.gpus.size(), 8u);
  EXPECT_EQ(host.nics.size(), 8u);
  EXPECT_EQ(host.nics[7], (Nic{"nic7", 50'000'000'000, 50'000'000'000}));
  EXPECT_EQ(host.gpus[7],
            (HostGpu{7, "nic7", 450'000'000'000, 450'000'000'000, 1'340'000'000'000}));
}

TEST(GpuHostTest, WhereThereAreFewerNicsNeighboursShareThem) {
  ASSERT_OK_AND_ASSIGN(const Host host, GpuHost("l40s-pcie", "a"));
  ASSERT_EQ(host.gpus.size(), 4u);
  EXPECT_EQ(host.gpus[1].nic, "nic0");
  EXPECT_EQ(host.gpus[2].nic, "nic1");
}

TEST(GpuHostTest, ANetworkHasHostsOfOneKind) {
  ASSERT_OK_AND_ASSIGN(const Topology network, GpuHosts("a100x8", {"a", "b"}));
  ASSERT_EQ(network.hosts().size(), 2u);
  EXPECT_EQ(network.hosts()[1], *GpuHost("a100x8", "b"));
  EXPECT_THAT(GpuHosts("a100x8", {"a", "a"}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("host a is named twice")));
}

TEST(GpuHostTest, AnUnknownPresetIsAnsweredWithAllThatThereAre) {
  EXPECT_THAT(GpuHost("v100x16", "a"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("expected a100x8, b200x8, h100x8, l40s-pcie, found \"v100x16\"")));
}

}  // namespace
}  // namespace crossmesh
