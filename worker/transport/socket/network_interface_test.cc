#include "worker/transport/socket/network_interface.h"

#include "common/testing/status_matchers.h"
#include "worker/transport/socket/testing/ip_of.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::IsEmpty;

const std::vector<InterfaceAddress> kAddresses = {
    {"lo", IpOf("127.0.0.1"), IpOf("255.0.0.0")},
    {"eth0", IpOf("10.0.1.5"), IpOf("255.255.255.0")},
    {"eth1", IpOf("10.0.1.6"), IpOf("255.255.255.0")},
    {"eth1", IpOf("10.0.1.7"), IpOf("255.255.255.0")},
    {"eth2", IpOf("10.0.2.5"), IpOf("255.255.254.0")},
    {"eth0", IpOf("fd00::5"), IpOf("ffff:ffff:ffff:ffff::")},
    {"eth2", IpOf("fd00::6"), IpOf("ffff:ffff:ffff:ffff::")},
    {"eth3", IpOf("10.0.9.1"), IpOf("255.255.255.252")},
    {"eth4", IpOf("::5"), IpOf("ffff:ffff:ffff:ffff::")},
};

TEST(NetworkInterfaceTest, InterfacesOfOneSubnetAreFoundOnce) {
  EXPECT_THAT(InterfacesInSubnetOf(IpOf("10.0.1.99"), kAddresses), ElementsAre("eth0", "eth1"));
  EXPECT_THAT(InterfacesInSubnetOf(IpOf("10.0.3.99"), kAddresses), ElementsAre("eth2"));
  EXPECT_THAT(InterfacesInSubnetOf(IpOf("fd00::99"), kAddresses), ElementsAre("eth0", "eth2"));
}

TEST(NetworkInterfaceTest, OtherSubnetsAreReachedByRoutes) {
  EXPECT_THAT(InterfacesInSubnetOf(IpOf("10.0.4.1"), kAddresses), IsEmpty());
  EXPECT_THAT(InterfacesInSubnetOf(IpOf("fd01::1"), kAddresses), IsEmpty());
}

TEST(NetworkInterfaceTest, ASubnetIsDecidedByAllBitsOfItsMask) {
  EXPECT_THAT(InterfacesInSubnetOf(IpOf("10.0.9.2"), kAddresses), ElementsAre("eth3"));
  EXPECT_THAT(InterfacesInSubnetOf(IpOf("10.0.9.5"), kAddresses), IsEmpty());
  EXPECT_THAT(InterfacesInSubnetOf(IpOf("fc00::99"), kAddresses), IsEmpty());
  EXPECT_THAT(InterfacesInSubnetOf(IpOf("fd00:0:0:1::99"), kAddresses), IsEmpty());
}

// Though an IPv4 address stands in the bits of an IPv6 one.
TEST(NetworkInterfaceTest, NoIpv4AddressIsInASubnetOfIpv6AndTheOtherWayRound) {
  EXPECT_THAT(InterfacesInSubnetOf(IpOf("::7"), kAddresses), ElementsAre("eth4"));
  EXPECT_THAT(InterfacesInSubnetOf(IpOf("192.0.2.1"), kAddresses), IsEmpty());
  EXPECT_THAT(InterfacesInSubnetOf(IpOf("fd01::ffff:a00:163"), kAddresses), IsEmpty());
}

TEST(NetworkInterfaceTest, WhatIsOfThisHostDoesNotLeaveIt) {
  EXPECT_THAT(InterfacesInSubnetOf(IpOf("10.0.1.7"), kAddresses), IsEmpty());
  EXPECT_THAT(InterfacesInSubnetOf(IpOf("127.0.0.1"), kAddresses), IsEmpty());
}

TEST(NetworkInterfaceTest, LoopbackIsListed) {
  ASSERT_OK_AND_ASSIGN(const std::vector<InterfaceAddress> addresses, ListInterfaces());
  EXPECT_THAT(addresses, Contains(Field(&InterfaceAddress::interface, "lo")));
}

}  // namespace
}  // namespace crossmesh
