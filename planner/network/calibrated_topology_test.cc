#include "planner/network/calibrated_topology.h"

#include "common/mesh/gpu_host.h"
#include "common/testing/status_matchers.h"

#include <string>
#include <vector>

#include <absl/status/status.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kTime[] = "2026-11-27T06:20:00Z";
constexpr char kSource[] = "measured on H100 at 2026-11-27T06:20:00Z";

GpuFigures Figures(const std::string& host, int32_t index) {
  return {.device = {host, index},
          .model = "H100",
          .launch_ns = 4'000,
          .group_ns = 70'000,
          .message_ns = 900,
          .copy_bytes_per_second = 1'200'000'000'000,
          .exchange_bytes_per_second = 300'000'000'000,
          .exchange_message_bytes = int64_t{64} << 20};
}

Topology Of(const std::string& preset) { return *GpuHosts(preset, {"a"}); }

std::vector<GpuFigures> All(int gpus) {
  std::vector<GpuFigures> figures;
  for (int32_t gpu = 0; gpu < gpus; ++gpu) figures.push_back(Figures("a", gpu));
  return figures;
}

TEST(CalibratedTopologyTest, CostsAreThoseOfTheSlowestGpu) {
  std::vector<GpuFigures> figures = All(8);
  figures[3].group_ns = 90'000;
  figures[3].model = "slow";
  figures[5].launch_ns = 6'000;
  ASSERT_OK_AND_ASSIGN(const CalibratedNetwork network,
                       CalibratedTopology(figures, Of("h100x8"), kTime));
  const GpuCosts& costs = network.topology.gpu_costs();
  EXPECT_EQ(costs.launch_ns, (GpuCost{6'000, kSource})) << "though less was assumed before";
  EXPECT_EQ(costs.group_ns, (GpuCost{90'000, "measured on slow at 2026-11-27T06:20:00Z"}));
  EXPECT_EQ(costs.message_ns, (GpuCost{900, kSource})) << "less than what was assumed";
}

TEST(CalibratedTopologyTest, WhatIsMeasuredAgainTakesThePlaceOfWhatWas) {
  ASSERT_OK_AND_ASSIGN(const CalibratedNetwork once,
                       CalibratedTopology(All(8), Of("h100x8"), kTime));
  std::vector<GpuFigures> figures = All(8);
  for (GpuFigures& gpu : figures) gpu.group_ns = 30'000;
  ASSERT_OK_AND_ASSIGN(const CalibratedNetwork again,
                       CalibratedTopology(figures, once.topology, "later"));
  EXPECT_EQ(again.topology.gpu_costs().group_ns, (GpuCost{30'000, "measured on H100 at later"}));
}

TEST(CalibratedTopologyTest, ChannelsAreMeasuredWhereTheyLimit) {
  ASSERT_OK_AND_ASSIGN(const CalibratedNetwork network,
                       CalibratedTopology(All(8), Of("h100x8"), kTime));
  // Of 64 channels 8 ranks have 8 for each peer.
  EXPECT_EQ(network.topology.gpu_costs().channel_bytes_per_second,
            (GpuCost{300'000'000'000 / 8, kSource}));
  for (const HostGpu& gpu : network.topology.hosts()[0].gpus) {
    EXPECT_EQ(gpu.link_out_bytes_per_second, 450'000'000'000);
    EXPECT_EQ(gpu.link_source, "assumed");
    EXPECT_EQ(gpu.copy_bytes_per_second, 1'200'000'000'000);
    EXPECT_EQ(gpu.copy_source, kSource);
  }
  EXPECT_THAT(network.warnings, Contains(HasSubstr("GPU a.0: ")));
  EXPECT_THAT(network.warnings, Contains(HasSubstr("channels limit what it exchanges")));
}

TEST(CalibratedTopologyTest, LinksAreMeasuredWhereTheyLimit) {
  std::vector<GpuFigures> figures = All(4);
  for (GpuFigures& gpu : figures) gpu.exchange_bytes_per_second = 21'000'000'000;
  figures[2].exchange_bytes_per_second = 12'000'000'000;
  ASSERT_OK_AND_ASSIGN(const CalibratedNetwork network,
                       CalibratedTopology(figures, Of("l40s-pcie"), kTime));
  const std::vector<HostGpu>& gpus = network.topology.hosts()[0].gpus;
  EXPECT_EQ(gpus[0].link_out_bytes_per_second, 21'000'000'000);
  EXPECT_EQ(gpus[0].link_in_bytes_per_second, 21'000'000'000);
  EXPECT_EQ(gpus[2].link_out_bytes_per_second, 12'000'000'000);
  EXPECT_EQ(gpus[2].link_source, kSource);
  EXPECT_EQ(network.topology.gpu_costs().channel_bytes_per_second,
            GpuCosts().channel_bytes_per_second);
  EXPECT_THAT(network.warnings, Contains(HasSubstr("channel_bytes_per_second stays as it was, "
                                                   "assumed: links limit")));
}

TEST(CalibratedTopologyTest, WhatWasNotMeasuredStaysAndIsNamed) {
  std::vector<GpuFigures> figures = {Figures("a", 1), Figures("b", 7)};
  for (GpuFigures& gpu : figures) gpu.exchange_bytes_per_second = 0;
  ASSERT_OK_AND_ASSIGN(const CalibratedNetwork network,
                       CalibratedTopology(figures, Of("l40s-pcie"), kTime));
  EXPECT_EQ(network.topology.hosts()[0].gpus[0], Of("l40s-pcie").hosts()[0].gpus[0]);
  EXPECT_EQ(network.topology.hosts()[0].gpus[1].copy_source, kSource);
  EXPECT_EQ(network.topology.hosts()[0].gpus[1].link_source, "assumed");
  EXPECT_EQ(network.topology.gpu_costs().group_ns.source, kSource);
  EXPECT_THAT(network.warnings, Contains(HasSubstr("GPU a.1: it was measured alone; its links stay "
                                                   "as they were, assumed")));
  EXPECT_THAT(network.warnings, Contains(HasSubstr("GPU b.7: the network's description does not")));
  EXPECT_THAT(network.warnings, Contains("GPU a.0: not measured, it stays as it was"));
  EXPECT_THAT(network.warnings, Not(Contains(HasSubstr("a.1: not measured"))));
  EXPECT_THAT(network.warnings, Contains(HasSubstr("no GPU exchanged bytes")));
}

TEST(CalibratedTopologyTest, WhatSharesExchangeSaysNothing) {
  std::vector<GpuFigures> figures = All(4);
  for (GpuFigures& gpu : figures) gpu.is_share = true;
  ASSERT_OK_AND_ASSIGN(const CalibratedNetwork network,
                       CalibratedTopology(figures, Of("l40s-pcie"), kTime));
  EXPECT_EQ(network.topology.hosts()[0].gpus[0].link_source, "assumed");
  EXPECT_THAT(network.warnings, Contains(HasSubstr("GPU a.0: it is a share")));
}

TEST(CalibratedTopologyTest, ImpossibleFiguresAreRefusedWithTheGpu) {
  const auto refused = [](auto spoil, const std::string& message) {
    std::vector<GpuFigures> figures = All(2);
    spoil(figures[1]);
    EXPECT_THAT(CalibratedTopology(figures, Of("h100x8"), kTime).status(),
                StatusIs(absl::StatusCode::kOutOfRange, HasSubstr(message)));
  };
  refused([](GpuFigures& gpu) { gpu.launch_ns = 0; },
          "GPU a.1: expected launch_ns of 1 to 1000000000, measured 0");
  refused([](GpuFigures& gpu) { gpu.group_ns = kGpuCostNsMax + 1; }, "expected group_ns");
  refused([](GpuFigures& gpu) { gpu.message_ns = -1; }, "expected message_ns");
  refused([](GpuFigures& gpu) { gpu.copy_bytes_per_second = 0; }, "copy_bytes_per_second");
  refused([](GpuFigures& gpu) { gpu.exchange_bytes_per_second = -1; }, "exchange_bytes_per_second");
  refused([](GpuFigures& gpu) { gpu.exchange_message_bytes = 0; }, "exchange_message_bytes");
}

}  // namespace
}  // namespace crossmesh
