#include "client/cli/network_report.h"

#include "common/mesh/gpu_host.h"
#include "common/testing/status_matchers.h"
#include "common/wire/tensor_codec.h"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

v1::Network NetworkOf(const Topology& topology, int64_t revision) {
  v1::Network network;
  *network.mutable_topology() = ToProto(topology);
  network.set_revision(revision);
  return network;
}

Topology Measured() {
  std::vector<Host> hosts = GpuHosts("l40s-pcie", {"a"})->hosts();
  hosts[0].gpus[1].copy_bytes_per_second = 300'000'000'000;
  hosts[0].gpus[1].copy_source = "measured on L40S at noon";
  return *Topology::Create(std::move(hosts), {}, Topology::kAssumedBytesPerSecond,
                           {.group_ns = {70'000, "measured on L40S at noon"}});
}

TEST(NetworkReportTest, CostsOfGpusHaveTheirSources) {
  const std::string text = NetworkText(NetworkOf(Measured(), 2));
  EXPECT_THAT(text, ContainsRegex("a launch +5\\.00? us +assumed"));
  EXPECT_THAT(text, ContainsRegex("a group of calls +70\\.0 us +measured on L40S at noon"));
  EXPECT_THAT(text, ContainsRegex("a channel +20\\.0+ GB/s +assumed"));
  EXPECT_THAT(text, ContainsRegex("a\\.1 +nic0 .* assumed +measured on L40S at noon"));
  EXPECT_THAT(NetworkText(NetworkOf(Topology(), 0)), Not(HasSubstr("COST OF GPUS")));
}

TEST(NetworkReportTest, ACalibrationHasBeforeBesideNow) {
  v1::CalibrateGpusResponse response;
  *response.mutable_before() = NetworkOf(*GpuHosts("l40s-pcie", {"a"}), 1);
  *response.mutable_network() = NetworkOf(Measured(), 2);
  response.add_warnings("GPU a.0: not measured, it stays as it was");
  const std::string text = CalibrationText(response);
  EXPECT_THAT(text, ContainsRegex("a group of calls +50\\.0 us +assumed +70\\.0 us +measured on"));
  EXPECT_THAT(text, ContainsRegex("a message +1\\.0+ us +assumed +1\\.0+ us +assumed"));
  EXPECT_THAT(text,
              ContainsRegex("a\\.1 copies +345\\.?6? GB/s +assumed +300\\.?0? GB/s +measured"));
  EXPECT_THAT(text, ContainsRegex("a\\.3 links +26\\.0 GB/s +assumed +26\\.0 GB/s +assumed"));
  EXPECT_THAT(text, HasSubstr("GPU a.0: not measured"));
  EXPECT_THAT(text, HasSubstr("network revision 2\n"));
  response.mutable_network()->set_revision(1);
  EXPECT_THAT(CalibrationText(response), HasSubstr("the network's description stays as it was\n"));
}

}  // namespace
}  // namespace crossmesh
