#include "common/mesh/topology.h"

#include "common/testing/is_refused.h"
#include "common/testing/status_matchers.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

const Nic kNic = {"eth0", 10, 20};
const HostGpu kGpu = {3, "eth0", 1, 2, 3};
const Rack kRack = {"r", {"a"}, 5, 6};

TEST(TopologyTest, SumsTheRatesOfAHost) {
  ASSERT_OK_AND_ASSIGN(const Topology topology,
                       Topology::Create({{"a", {kNic, {"eth1", 1, 2}}}}, {kRack}, 7));
  EXPECT_EQ(topology.RateOut("a"), 11);
  EXPECT_EQ(topology.RateIn("a"), 22);
  EXPECT_EQ(topology.RackOf("a"), 0);
  EXPECT_EQ(topology.RackOf("b"), std::nullopt);
  EXPECT_EQ(topology.FindHost("a")->nics.size(), 2U);
}

TEST(TopologyTest, AssumesARateForHostsThatAreNotDescribed) {
  ASSERT_OK_AND_ASSIGN(const Topology topology, Topology::Create({}, {}, 7));
  EXPECT_EQ(topology.RateOut("b"), 7);
  EXPECT_EQ(topology.RateIn("b"), 7);
  EXPECT_EQ(topology.FindHost("b"), nullptr);
  EXPECT_EQ(Topology().RateIn("b"), Topology::kAssumedBytesPerSecond);
}

TEST(TopologyTest, RefusesWhatContradictsItself) {
  const Host a = {"a", {kNic}};
  struct Case {
    std::vector<Host> hosts;
    std::vector<Rack> racks;
    int64_t assumed;
    std::string message;
  };
  const std::vector<Case> cases = {
      {{a, a}, {}, 1, "host a is named twice"},
      {{{"A", {kNic}}}, {}, 1, "host \"A\": expected a name"},
      {{{"a", {}}}, {}, 1, "host a: expected 1 to 1024 NICs, found 0"},
      {{{"a", {kNic, kNic}}}, {}, 1, "NIC \"eth0\" is named twice"},
      {{{"a", {{"", 1, 1}}}}, {}, 1, "a NIC has no name"},
      {{{"a", {{"n", 0, 1}}}}, {}, 1, "out_bytes_per_second of 1 to"},
      {{{"a", {{"n", 1, -1}}}}, {}, 1, "in_bytes_per_second of 1 to"},
      {{{"a", {{"n", Topology::kNicBytesPerSecondMax + 1, 1}}}},
       {},
       1,
       "host a, NIC \"n\": expected out_bytes_per_second of 1 to 1250000000000 (10 Tbit/s), found "
       "1250000000001"},
      {{{"a", {{"n", 1, 1, -1}}}}, {}, 1, "NIC \"n\": expected out_latency_ns of 0 to"},
      {{{"a", {{"n", 1, 1, 0, Topology::kLatencyNsMax + 1}}}}, {}, 1, "in_latency_ns of 0 to"},
      {{{"a", {kNic}, {}, -1}}, {}, 1, "host a: expected local_bytes_per_second of 0 to"},
      {{{"a", {kNic}, {{1024, "eth0", 1, 1, 1}}}}, {}, 1, "GPU a.1024: expected a device of 0 to"},
      {{{"a", {kNic}, {{-1, "eth0", 1, 1, 1}}}}, {}, 1, "GPU a.-1: expected a device of 0 to"},
      {{{"a", {kNic}, {kGpu, kGpu}}}, {}, 1, "GPU a.3 is listed twice"},
      {{{"a", {kNic}, {{3, "eth0", 1, 2, 3, ""}}}}, {}, 1, "GPU a.3, links: expected a source"},
      {{{"a", {kNic}, {{3, "eth0", 1, 2, 3, "x", "\n"}}}}, {}, 1, "GPU a.3, copies: expected a"},
      {{{"a", {kNic}, {{0, "ib0", 1, 1, 1}}}}, {}, 1, "a NIC of its host, found \"ib0\""},
      {{{"a", {kNic}, {{0, "eth0", 0, 1, 1}}}}, {}, 1, "link_out_bytes_per_second of 1 to"},
      {{{"a", {kNic}, {{0, "eth0", 1, 0, 1}}}}, {}, 1, "link_in_bytes_per_second of 1 to"},
      {{{"a", {kNic}, {{0, "eth0", 1, 1, 0}}}}, {}, 1, "copy_bytes_per_second of 1 to"},
      {{a}, {}, Topology::kNicBytesPerSecondMax + 1, "assumed_bytes_per_second of 1 to"},
      {{a}, {{"r", {"b"}, 1, 1}}, 1, "names host \"b\", which is not described"},
      {{a}, {{"r", {"a"}, 0, 1}}, 1, "up_bytes_per_second"},
      {{a}, {{"r", {"a"}, 1, 0}}, 1, "down_bytes_per_second"},
      {{a}, {{"", {"a"}, 1, 1}}, 1, "rack 0 has no name"},
      {{a}, {{"r", {}, 1, 1}, {"r", {}, 1, 1}}, 1, "rack \"r\" is named twice"},
      {{a}, {kRack, {"q", {"a"}, 1, 1}}, 1, "in rack \"r\" already"},
      {{a}, {}, 0, "assumed_bytes_per_second"}};
  for (const Case& c : cases) {
    EXPECT_THAT(Topology::Create(c.hosts, c.racks, c.assumed), IsRefused(c.message));
  }
}

TEST(TopologyTest, FindsTheGpusThatItsHostsList) {
  ASSERT_OK_AND_ASSIGN(const Topology topology, Topology::Create({{"a", {kNic}, {kGpu}}}, {}));
  ASSERT_NE(topology.FindGpu({"a", 3}), nullptr);
  EXPECT_EQ(*topology.FindGpu({"a", 3}), kGpu);
  EXPECT_EQ(topology.FindGpu({"a", 0}), nullptr);
  EXPECT_EQ(topology.FindGpu({"b", 3}), nullptr);
}

TEST(TopologyTest, AShareIsOfEveryRate) {
  ASSERT_OK_AND_ASSIGN(const Topology topology,
                       Topology::Create({{"a", {{"n", 100, 3}}}}, {{"r", {"a"}, 40, 20}}, 8));
  const Topology half = topology.WithShare(0.5);
  EXPECT_EQ(half.RateOut("a"), 50);
  EXPECT_EQ(half.RateIn("a"), 1);
  EXPECT_EQ(half.racks()[0].up_bytes_per_second, 20);
  EXPECT_EQ(half.racks()[0].down_bytes_per_second, 10);
  EXPECT_EQ(half.assumed_bytes_per_second(), 4);
  EXPECT_EQ(topology.WithShare(0.001).RateIn("a"), 1) << "something is left";
  EXPECT_EQ(topology.WithShare(1), topology);
}

}  // namespace
}  // namespace crossmesh
