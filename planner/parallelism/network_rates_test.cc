#include "planner/parallelism/network_rates.h"

#include "common/mesh/gpu_host.h"
#include "common/mesh/mesh.h"
#include "common/testing/status_matchers.h"

#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;

constexpr double kStep = 50e-6;  // of host memory, as assumed
constexpr double kMessage = 10e-6;

Host HostOf(const std::string& name, int64_t nic, int64_t local) {
  return {.name = name,
          .nics = {{.name = "eth0",
                    .out_bytes_per_second = nic,
                    .in_bytes_per_second = nic,
                    .out_latency_ns = 1000,
                    .in_latency_ns = 2000}},
          .local_bytes_per_second = local};
}

// Four hosts of four devices, in two racks where there are any.
Topology FourHosts(bool racks) {
  std::vector<Host> hosts;
  for (const char* name : {"a", "b", "c", "d"}) hosts.push_back(HostOf(name, 8'000, 80'000));
  std::vector<Rack> shared;
  if (racks) {
    shared = {{"left", {"a", "b"}, 4'000, 6'000}, {"right", {"c", "d"}, 4'800, 4'800}};
  }
  return *Topology::Create(hosts, shared);
}

std::vector<DeviceId> SixteenDevices() { return *ParseDevices("a.0-3,b.0-3,c.0-3,d.0-3"); }

TEST(NetworkRatesTest, AGroupInsideAHostHasItsLinks) {
  ASSERT_OK_AND_ASSIGN(const PositionRates rates,
                       RatesOfNetwork(SixteenDevices(), FourHosts(false)));
  // Each of four devices has its part of 80 kB/s.
  const AxisRate& pair = rates.At(1, 2);
  EXPECT_EQ(pair.source(), RateSource::kDescribed);
  EXPECT_NEAR(pair.bytes_per_second(), 20'000, 1e-6);
  EXPECT_NEAR(pair.Seconds(CollectiveOp::kAllGather, 1e6), kStep + kMessage + 5e5 / 2e4, 1e-9);
  EXPECT_NEAR(rates.At(2, 2).bytes_per_second(), 20'000, 1e-6);
}

TEST(NetworkRatesTest, AGroupOverHostsGoesLevelByLevel) {
  ASSERT_OK_AND_ASSIGN(const PositionRates rates,
                       RatesOfNetwork(SixteenDevices(), FourHosts(false)));
  // One ring over four hosts, each device with its quarter of the NIC.
  const double message = kMessage + 3e-6;
  EXPECT_NEAR(rates.At(4, 4).Seconds(CollectiveOp::kAllGather, 4e6),
              kStep + 3 * (message + 1e6 / 2'000), 1e-9);
  EXPECT_NEAR(rates.At(4, 4).Seconds(CollectiveOp::kAllReduce, 4e6),
              2 * (kStep + 3 * (message + 1e6 / 2'000)), 1e-9);
  // All sixteen: pieces of a sixteenth between hosts, then of a quarter inside.
  EXPECT_NEAR(rates.At(1, 16).Seconds(CollectiveOp::kAllGather, 16e6),
              kStep + 3 * (message + 1e6 / 2'000) + kStep + 3 * (kMessage + 4e6 / 20'000), 1e-6);
  // Every peer by itself: 3 in the host, 12 outside.
  EXPECT_NEAR(rates.At(1, 16).Seconds(CollectiveOp::kAllToAll, 16e6),
              kStep + 3 * (kMessage + 1e6 / 20'000) + 12 * (message + 1e6 / 2'000), 1e-6);
  EXPECT_NEAR(rates.At(4, 4).Seconds(CollectiveOp::kSend, 1e6), kStep + message + 1e6 / 2'000,
              1e-9);
}

TEST(NetworkRatesTest, RacksHaveUplinksThatDevicesShare) {
  ASSERT_OK_AND_ASSIGN(const PositionRates rates,
                       RatesOfNetwork(SixteenDevices(), FourHosts(true)));
  const double message = kMessage + 3e-6;
  // Two hosts of a rack, then two racks: an eighth of 4 kB/s.
  EXPECT_NEAR(rates.At(4, 4).Seconds(CollectiveOp::kAllGather, 4e6),
              kStep + (message + 1e6 / 500) + kStep + (message + 2e6 / 2'000), 1e-6);
  EXPECT_NEAR(rates.At(8, 2).bytes_per_second(), 500, 1e-6);
  EXPECT_NEAR(rates.At(4, 2).bytes_per_second(), 2'000, 1e-6);
}

TEST(NetworkRatesTest, GpusHaveNicsOfTheirOwn) {
  ASSERT_OK_AND_ASSIGN(const Topology topology, GpuHosts("h100x8", {"a", "b"}));
  ASSERT_OK_AND_ASSIGN(const std::vector<DeviceId> devices, ParseDevices("a.0-7,b.0-7"));
  ASSERT_OK_AND_ASSIGN(const PositionRates rates, RatesOfNetwork(devices, topology));
  EXPECT_NEAR(rates.At(1, 8).bytes_per_second(), 450e9, 1);
  EXPECT_NEAR(rates.At(8, 2).bytes_per_second(), 50e9, 1);
}

// The plainest thing that it could be: two members of a part are in one host, for every group.
int64_t InsideByDefinition(const std::vector<DeviceId>& devices, int64_t inner, int64_t own) {
  for (int64_t part = own; part > 1; --part) {
    if (own % part != 0) continue;
    bool inside = true;
    for (size_t i = 0; i < devices.size(); ++i) {
      for (size_t j = 0; j < devices.size(); ++j) {
        const auto left = static_cast<int64_t>(i);
        const auto right = static_cast<int64_t>(j);
        const bool same_group =
            left % inner == right % inner && left / (inner * own) == right / (inner * own);
        const bool same_part =
            same_group && left / inner % own / part == right / inner % own / part;
        inside = inside && (!same_part || devices[i].host == devices[j].host);
      }
    }
    if (inside) return part;
  }
  return 1;
}

TEST(NetworkRatesTest, HostsOfUnlikeSizesAreCutWhereGroupsLeaveThem) {
  for (const char* text : {"a.0-1,b.0-3,c.0-5", "a.0-2,b.0-2,c.0-2,d.0-2", "a.0,b.0-6,c.0-3",
                           "a.0,b.0,a.1,b.1,a.2,b.2", "a.0-5,b.0-5,c.0-4,d.0"}) {
    SCOPED_TRACE(text);
    ASSERT_OK_AND_ASSIGN(const std::vector<DeviceId> devices, ParseDevices(text));
    const auto count = static_cast<int64_t>(devices.size());
    std::vector<Host> hosts;
    for (const char* name : {"a", "b", "c", "d"}) {
      hosts.push_back(HostOf(name, 1'000'000'000'000, 0));
    }
    ASSERT_OK_AND_ASSIGN(const PositionRates rates,
                         RatesOfNetwork(devices, *Topology::Create(hosts, {})));
    for (const auto& [inner, own] : PositionRates::PositionsOf(count)) {
      const int64_t inside = InsideByDefinition(devices, inner, own);
      // Latency tells the levels apart: 3 us more for each message between hosts.
      const double messages = static_cast<double>(inside - 1 + own / inside - 1);
      const double steps = (inside > 1 ? 1 : 0) + (inside < own ? 1 : 0);
      EXPECT_NEAR(
          rates.At(inner, own).Seconds(CollectiveOp::kAllGather, 0),
          steps * kStep + messages * kMessage + static_cast<double>(own / inside - 1) * 3e-6, 1e-12)
          << inner << " " << own;
    }
  }
}

TEST(NetworkRatesTest, WhatWasMeasuredTakesThePlaceOfTheDescription) {
  const std::vector<MeasuredPosition> measured = {{{4, 4}, 1e-6, 1'000}};
  ASSERT_OK_AND_ASSIGN(const PositionRates rates,
                       RatesOfNetwork(SixteenDevices(), FourHosts(false), measured));
  EXPECT_EQ(rates.At(4, 4).source(), RateSource::kMeasured);
  EXPECT_NEAR(rates.At(4, 4).Seconds(CollectiveOp::kReduceScatter, 4e6), 3 * (1e-6 + 1e6 / 1'000),
              1e-9);
  EXPECT_EQ(rates.At(4, 2).source(), RateSource::kDescribed);
}

TEST(NetworkRatesTest, WhatCannotBeAPositionIsNamed) {
  const struct {
    MeasuredPosition measured;
    const char* error;
  } mistakes[] = {
      {{{3, 2}, 0, 1}, "inner 3, own 2: expected sizes whose product divides the 16 devices"},
      {{{4, 1}, 0, 1}, "the second at least 2"},
      {{{0, 2}, 0, 1}, "inner 0"},
      {{{4, 4}, 0, 0}, "bytes per second: expected more than 0, found 0"},
      {{{4, 4}, -1, 1}, "seconds of a message: expected at least 0"}};
  for (const auto& [measured, error] : mistakes) {
    EXPECT_THAT(RatesOfNetwork(SixteenDevices(), Topology(), {{measured}}),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(error)));
  }
  const std::vector<MeasuredPosition> twice(2, {{4, 4}, 0, 1});
  EXPECT_THAT(RatesOfNetwork(SixteenDevices(), Topology(), twice),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("found it again")));
  EXPECT_THAT(RatesOfNetwork({}, Topology()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("found none")));
  EXPECT_THAT(RatesOfNetwork({{{"a", 0}, {"b", 0}, {"a", 0}}}, Topology()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("found a.0 again")));
}

TEST(NetworkRatesTest, FilesOfMeasuredPositionsAreRead) {
  ASSERT_OK_AND_ASSIGN(
      const std::vector<MeasuredPosition> positions,
      ParseMeasuredPositions("axes.json",
                             R"({"positions": [{"inner": 8, "own": 4, "bytes_per_second": 12000,
                                                "message_ns": 2000},
                                               {"inner": 1, "own": 2, "bytes_per_second": 5}]})"));
  EXPECT_EQ(positions, (std::vector<MeasuredPosition>{{{8, 4}, 2e-6, 12'000}, {{1, 2}, 0, 5}}));
  for (const char* text :
       {"{}", "[]", R"({"positions": [{"inner": 8}]})", R"({"positions": [{"inner": "8"}]})",
        R"({"positions": [{"inner": 8, "own": 4, "bytes_per_second": 1, "colour": 3}]})"}) {
    EXPECT_THAT(ParseMeasuredPositions("axes.json", text),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("axes.json")))
        << text;
  }
}

TEST(NetworkRatesTest, RatesNeedEveryPositionOnce) {
  EXPECT_THAT(PositionRates::Create(4, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("expected each of 3")));
  EXPECT_EQ(PositionRates::PositionsOf(4), (std::vector<AxisPosition>{{1, 2}, {1, 4}, {2, 2}}));
}

// Some device has its neighbour there.
TEST(NetworkRatesTest, WhatIsSentToANeighbourGoesOverTheFarthestLink) {
  const RateLevel levels[] = {{.size = 2, .seconds_per_message = 1, .bytes_per_second = 100},
                              {.size = 4, .seconds_per_message = 3, .bytes_per_second = 10}};
  const AxisRate rate(levels, 0.5, RateSource::kDescribed);
  EXPECT_EQ(rate.Seconds(CollectiveOp::kSend, 1000), 0.5 + 3 + 100);
}

}  // namespace
}  // namespace crossmesh
