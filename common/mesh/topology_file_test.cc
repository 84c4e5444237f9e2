#include "common/mesh/topology_file.h"

#include "common/testing/is_refused.h"
#include "common/testing/status_matchers.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

TEST(TopologyFileTest, ReadsHostsAndRacks) {
  ASSERT_OK_AND_ASSIGN(const Topology topology, ParseTopologyFile(R"({
      "hosts": [{"name": "a", "nics": [
          {"name": "n0", "out_bytes_per_second": 3, "in_bytes_per_second": 4},
          {"name": "n1", "out_bytes_per_second": 5, "in_bytes_per_second": 6}]}],
      "racks": [{"name": "r", "hosts": ["a"], "up_bytes_per_second": 7,
                 "down_bytes_per_second": 8}],
      "assumed_bytes_per_second": 9})"));
  EXPECT_EQ(topology.RateOut("a"), 8);
  EXPECT_EQ(topology.RateIn("a"), 10);
  EXPECT_EQ(topology.RateIn("b"), 9);
  EXPECT_EQ(topology.racks()[0], (Rack{"r", {"a"}, 7, 8}));
  EXPECT_THAT(ParseTopologyFile("{}"), IsOkAndHolds(Topology()));
}

TEST(TopologyFileTest, ReadsLatenciesAndLocalRatesAndMayDoWithout) {
  ASSERT_OK_AND_ASSIGN(const Topology topology, ParseTopologyFile(R"({
      "hosts": [{"name": "a", "local_bytes_per_second": 5, "nics": [
          {"name": "n0", "out_bytes_per_second": 1, "in_bytes_per_second": 2,
           "out_latency_ns": 3, "in_latency_ns": 4}]},
          {"name": "b", "nics": [
          {"name": "n0", "out_bytes_per_second": 1, "in_bytes_per_second": 2}]}]})"));
  EXPECT_EQ(topology.hosts()[0], (Host{"a", {{"n0", 1, 2, 3, 4}}, {}, 5}));
  EXPECT_EQ(topology.hosts()[1], (Host{"b", {{"n0", 1, 2, 0, 0}}}));
}

TEST(TopologyFileTest, CostsThatAreNotThereAreAssumed) {
  ASSERT_OK_AND_ASSIGN(const Topology topology, ParseTopologyFile(R"({
      "hosts": [{"name": "a", "nics": [
          {"name": "n0", "out_bytes_per_second": 1, "in_bytes_per_second": 2}],
          "gpus": [{"device": 0, "nic": "n0", "link_out_bytes_per_second": 1,
                    "link_in_bytes_per_second": 2, "copy_bytes_per_second": 3,
                    "copy_source": "measured"}]}],
      "gpu_costs": {"group_ns": {"value": 70000, "source": "a trace"},
                    "message_ns": {"value": 2}}})"));
  const GpuCosts& costs = topology.gpu_costs();
  EXPECT_EQ(costs.group_ns, (GpuCost{70'000, "a trace"}));
  EXPECT_EQ(costs.message_ns, (GpuCost{2, "assumed"}));
  EXPECT_EQ(costs.launch_ns, GpuCosts().launch_ns);
  EXPECT_EQ(topology.hosts()[0].gpus[0], (HostGpu{0, "n0", 1, 2, 3, "assumed", "measured"}));
}

TEST(TopologyFileTest, WhatIsWrittenReadsTheSame) {
  ASSERT_OK_AND_ASSIGN(
      const Topology topology,
      Topology::Create(
          {{"a", {{"n0", 1, 2, 3, 4}, {"\"n\"", 5, 6}}, {{5, "n0", 13, 14, 15, "x", "\"y\""}}, 7},
           {"b", {{"n0", 8, 9}}}},
          {{"r", {"a", "b"}, 10, 11}}, 12,
          {.launch_ns = {1, "l"}, .channel_bytes_per_second = {2, "c"}}));
  EXPECT_THAT(ParseTopologyFile(ToTopologyFile(topology)), IsOkAndHolds(topology));
  EXPECT_THAT(ParseTopologyFile(ToTopologyFile(Topology())), IsOkAndHolds(Topology()));
}

TEST(TopologyFileTest, RefusesWhatItDoesNotExpect) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"([])", "network file: expected an object, found array"},
      {R"({"host": []})",
       "unknown key \"host\"; expected hosts, racks, assumed_bytes_per_second, gpu_costs"},
      {R"({"hosts": {}})", "\"hosts\" to be an array, found object"},
      {R"({"hosts": [{"name": "a"}]})",
       "hosts[0]: expected \"nics\" to be an array, found nothing"},
      {R"({"hosts": [{"name": "a", "nics": [{"name": 1}]}]})",
       "hosts[0].nics[0]: expected \"name\""},
      {R"({"hosts": [{"name": "a", "nics": [{"name": "n", "rate": 1}]}]})", "unknown key \"rate\""},
      {R"({"hosts": [{"name": "a", "nics": [{"name": "n", "out_bytes_per_second": 1,
           "in_bytes_per_second": 1, "out_latency_ns": 1.5}]}]})",
       "hosts[0].nics[0]: expected \"out_latency_ns\""},
      {R"({"hosts": [{"name": "a", "nics": [{"name": "n", "out_bytes_per_second": 1,
           "in_bytes_per_second": 1}], "local_bytes_per_second": "fast"}]})",
       "hosts[0]: expected \"local_bytes_per_second\""},
      {R"({"hosts": [{"name": "a", "nics": [{"name": "n", "out_bytes_per_second": 1,
           "in_bytes_per_second": 0}]}]})",
       "host a, NIC \"n\": expected in_bytes_per_second of 1 to"},
      {R"({"hosts": [{"name": "a", "nics": [{"name": "n", "out_bytes_per_second": 1,
           "in_bytes_per_second": 1}], "gpus": [{"device": 4294967296, "nic": "n"}]}]})",
       "hosts[0].gpus[0]: expected \"device\" of 0 to 1023, found 4294967296"},
      {R"({"hosts": [{"name": "a", "nics": [{"name": "n", "out_bytes_per_second": 1,
           "in_bytes_per_second": 1}], "gpus": [{"device": 1, "nic": "n"}]}]})",
       "hosts[0].gpus[0]: expected \"link_out_bytes_per_second\""},
      {R"({"racks": [{"name": "r", "hosts": [1]}]})", "racks[0]: expected \"hosts\"[0]"},
      {R"({"racks": [{"name": "r", "hosts": ["a"], "up_bytes_per_second": 1,
           "down_bytes_per_second": 1}]})",
       "names host \"a\""},
      {R"({"assumed_bytes_per_second": 1e9})", "integer below 2^63, found number"},
      {R"({"gpu_costs": []})", "network file gpu_costs: expected an object, found array"},
      {R"({"gpu_costs": {"step_ns": {"value": 1}}})", "gpu_costs: unknown key \"step_ns\""},
      {R"({"gpu_costs": {"launch_ns": 5000}})", "gpu_costs.launch_ns: expected an object"},
      {R"({"gpu_costs": {"launch_ns": {"source": "x"}}})",
       "gpu_costs.launch_ns: expected \"value\""},
      {R"({"gpu_costs": {"launch_ns": {"value": 0}}})",
       "network: expected gpu_costs.launch_ns of 1 to 1000000000, found 0"},
      {R"({"gpu_costs": {"launch_ns": {"value": 1, "source": ""}}})",
       "network, gpu_costs.launch_ns: expected a source"},
      {R"({"assumed_bytes_per_second": 0})", "assumed_bytes_per_second of 1 to"}};
  for (const auto& [text, message] : cases) {
    EXPECT_THAT(ParseTopologyFile(text), IsRefused(message)) << text;
  }
}

}  // namespace
}  // namespace crossmesh
