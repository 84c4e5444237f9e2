#include "planner/network/probe_schedule.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Rounds = std::vector<std::vector<ProbeLink>>;

// NICs by host, e.g. {2, 1} for h0/eth0, h0/eth1, h1/eth0.
std::vector<ProbePort> PortsOf(const std::vector<int>& nics) {
  std::vector<ProbePort> ports;
  for (size_t host = 0; host < nics.size(); ++host) {
    for (int nic = 0; nic < nics[host]; ++nic) {
      ports.push_back({absl::StrCat("h", 100 + host), absl::StrCat("eth", nic)});
    }
  }
  return ports;
}

std::vector<std::string> TextOf(const std::vector<ProbePort>& ports) {
  std::vector<std::string> lines;
  for (const std::vector<ProbeLink>& round : ScheduleProbes(ports)) {
    lines.push_back(absl::StrJoin(round, " ", [&](std::string* out, const ProbeLink& link) {
      absl::StrAppend(out, ToString(ports[link.from]), ">", ToString(ports[link.to]));
    }));
  }
  return lines;
}

TEST(ProbeScheduleTest, ThreeHostsTakeTwoRounds) {
  const std::vector<ProbePort> ports = {{"a", "e"}, {"b", "e"}, {"c", "e"}};
  EXPECT_THAT(TextOf(ports), ElementsAre("a/e>b/e c/e>a/e b/e>c/e", "a/e>c/e b/e>a/e c/e>b/e"));
}

TEST(ProbeScheduleTest, TwoHostsHaveEachOtherOnly) {
  const std::vector<ProbePort> one = {{"a", "e"}, {"b", "e"}};
  EXPECT_THAT(TextOf(one), ElementsAre("a/e>b/e b/e>a/e"));
  const std::vector<ProbePort> two = {{"a", "e"}, {"a", "f"}, {"b", "e"}, {"b", "f"}};
  EXPECT_THAT(TextOf(two), ElementsAre("a/e>b/e b/e>a/e", "a/f>b/f b/f>a/f", "a/e>b/f b/f>a/e",
                                       "b/e>a/f a/f>b/e"));
}

TEST(ProbeScheduleTest, NicsOfOneNameMeetFirst) {
  const std::vector<ProbePort> ports = {{"a", "e"}, {"b", "d"}, {"b", "e"}, {"c", "e"}};
  EXPECT_EQ(ScheduleProbes(ports)[0][0], (ProbeLink{0, 2}));
}

TEST(ProbeScheduleTest, FewerThanTwoHostsHaveNothingToMeasure) {
  EXPECT_THAT(ScheduleProbes({}), IsEmpty());
  EXPECT_THAT(ScheduleProbes(PortsOf({3})), IsEmpty());
}

TEST(ProbeScheduleTest, EqualHostsTakeTwoRoundsForEachNic) {
  EXPECT_EQ(ScheduleProbes(PortsOf({1, 1, 1, 1, 1})).size(), 2u);
  EXPECT_EQ(ScheduleProbes(PortsOf(std::vector<int>(40, 4))).size(), 8u);
}

// What the header promises, for hosts with any number of NICs.
void ExpectPromises(const std::vector<int>& nics) {
  const std::vector<ProbePort> ports = PortsOf(nics);
  std::map<int, std::set<std::string>> sent_to, received_from;
  std::set<ProbeLink> links;
  for (const std::vector<ProbeLink>& round : ScheduleProbes(ports)) {
    std::set<std::string> senders, receivers;
    for (const ProbeLink& link : round) {
      EXPECT_NE(ports[link.from].host, ports[link.to].host);
      EXPECT_TRUE(senders.insert(ports[link.from].host).second);
      EXPECT_TRUE(receivers.insert(ports[link.to].host).second);
      EXPECT_TRUE(links.insert(link).second);
      sent_to[link.from].insert(nics.size() > 2 ? ports[link.to].host : ToString(ports[link.to]));
      received_from[link.to].insert(nics.size() > 2 ? ports[link.from].host
                                                    : ToString(ports[link.from]));
    }
  }
  for (int port = 0; port < std::ssize(ports); ++port) {
    const size_t others = nics.size() > 2              ? 2
                          : ports[port].host == "h100" ? std::min(nics[1], 2)
                                                       : std::min(nics[0], 2);
    EXPECT_GE(sent_to[port].size(), others) << ToString(ports[port]);
    EXPECT_GE(received_from[port].size(), others) << ToString(ports[port]);
  }
}

TEST(ProbeScheduleTest, EveryNicHasTwoPartnersInBothDirections) {
  for (const std::vector<int>& nics : std::vector<std::vector<int>>{
           {1, 1}, {1, 2}, {3, 2}, {5, 1}, {1, 1, 1}, {1, 4, 2}, {8, 1, 1, 1}, {2, 3, 4, 5, 6}}) {
    SCOPED_TRACE(absl::StrJoin(nics, ","));
    ExpectPromises(nics);
  }
}

}  // namespace
}  // namespace crossmesh
