// Interfaces of a host, which is a network namespace of this thread. Needs the right to make one,
// which root has.

#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/unique_fd.h"
#include "common/testing/status_matchers.h"
#include "worker/transport/socket/network_interface.h"
#include "worker/transport/socket/testing/ip_of.h"
#include "worker/transport/socket/testing/refused_calls.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/syscall.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

UniqueFd OpenNamespace() {
  return UniqueFd(open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
}

bool Shell(const std::string& command) {
  return std::system(absl::StrCat("{ ", command, "; } >/dev/null 2>&1").c_str()) == 0;
}

// Has two links: a0 to a1, both in one subnet, and c0 to c1, of which c0 is in another.
class InterfacesTest : public testing::Test {
 protected:
  void SetUp() override {
    if (unshare(CLONE_NEWNET) != 0) {
      GTEST_SKIP() << "cannot make network namespaces: " << std::strerror(errno);
    }
    if (!Shell("ip link set lo up && ip link add a0 type veth peer name a1 && "
               "ip link add c0 type veth peer name c1")) {
      GTEST_SKIP() << "cannot make virtual links: `ip link add type veth` fails";
    }
    for (const std::string name : {"a0", "a1", "c0", "c1"}) {
      ASSERT_TRUE(Shell("ip link set " + name + " up"));
    }
    for (const std::string address :
         {"10.0.1.1/24 dev a0", "10.0.1.2/24 dev a1", "10.0.2.1/24 dev c0",
          "fd00:1::1/64 dev a0 nodad", "fd00:1::2/64 dev a1 nodad", "fd00:2::1/64 dev c1 nodad",
          "fd00:3::1/64 dev c1 nodad"}) {
      ASSERT_TRUE(Shell("ip address add " + address)) << address;
    }
  }
  void TearDown() override { CHECK_EQ(setns(own_.get(), CLONE_NEWNET), 0) << "errno " << errno; }

  static void SetArpIgnore(const std::string& interface, int value) {
    ASSERT_TRUE(Shell(
        absl::StrCat("echo ", value, " >/proc/sys/net/ipv4/conf/", interface, "/arp_ignore")));
  }

  std::vector<std::string> lines_;

 private:
  const UniqueFd own_ = OpenNamespace();
  const ScopedLogSink log_{[this](const LogRecord& record) { lines_.push_back(record.ToJson()); }};
};

TEST_F(InterfacesTest, AllAddressesAreListedButThoseOfOneLinkAlone) {
  ASSERT_OK_AND_ASSIGN(const std::vector<InterfaceAddress> addresses, ListInterfaces());
  std::vector<std::string> found;
  for (const InterfaceAddress& address : addresses) {
    found.push_back(absl::StrCat(address.interface, " ", address.endpoint.ToString(), " ",
                                 address.mask.ToString()));
  }
  EXPECT_THAT(found, testing::UnorderedElementsAre(
                         "lo 127.0.0.1:0 255.0.0.0:0", "a0 10.0.1.1:0 255.255.255.0:0",
                         "a1 10.0.1.2:0 255.255.255.0:0", "c0 10.0.2.1:0 255.255.255.0:0",
                         "lo [::1]:0 [ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:0",
                         "a0 [fd00:1::1]:0 [ffff:ffff:ffff:ffff::]:0",
                         "a1 [fd00:1::2]:0 [ffff:ffff:ffff:ffff::]:0",
                         "c1 [fd00:2::1]:0 [ffff:ffff:ffff:ffff::]:0",
                         "c1 [fd00:3::1]:0 [ffff:ffff:ffff:ffff::]:0"));
}

TEST_F(InterfacesTest, AnInterfaceIsFoundByItsIpv4AddressIfItHasOne) {
  EXPECT_THAT(FindInterface("lo"), IsOkAndHolds(IpOf("127.0.0.1")));
  EXPECT_THAT(FindInterface("a1"), IsOkAndHolds(IpOf("10.0.1.2")));
  EXPECT_THAT(FindInterface("c0"), IsOkAndHolds(IpOf("10.0.2.1")));
}

TEST_F(InterfacesTest, OneThatHasIpv6AloneIsFoundByTheFirstListed) {
  ASSERT_OK_AND_ASSIGN(const std::vector<InterfaceAddress> addresses, ListInterfaces());
  const auto first = std::ranges::find(addresses, "c1", &InterfaceAddress::interface);
  ASSERT_NE(first, addresses.end());
  EXPECT_THAT(FindInterface("c1"), IsOkAndHolds(first->endpoint));
}

TEST_F(InterfacesTest, OneWithoutAddressIsNamed) {
  ASSERT_TRUE(Shell("ip address flush dev c1"));
  EXPECT_THAT(FindInterface("c1"),
              StatusIs(absl::StatusCode::kUnavailable,
                       "network interface \"c1\": expected an IP address, found none"));
}

TEST_F(InterfacesTest, WhereTheSystemDoesNotListThemNoneIsFound) {
  absl::Status listed;
  absl::Status bound;
  RunRefused(SYS_socket, EMFILE, [&] {
    listed = ListInterfaces().status();
    bound = InterfaceToBind("a0", IpOf("10.0.1.99")).status();
  });
  for (const absl::Status& status : {listed, bound}) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable,
                                 "listing network interfaces: Too many open files"));
  }
}

TEST_F(InterfacesTest, OneOfSeveralInASubnetIsBound) {
  SetArpIgnore("all", 1);
  EXPECT_THAT(InterfaceToBind("a0", IpOf("10.0.1.99")), IsOkAndHolds("a0"));
  EXPECT_THAT(InterfaceToBind("a1", IpOf("10.0.1.99")), IsOkAndHolds("a1"));
  EXPECT_THAT(lines_, IsEmpty());
}

TEST_F(InterfacesTest, ItIsEnoughThatEachAnswersForItselfAlone) {
  SetArpIgnore("a0", 1);
  SetArpIgnore("a1", 1);
  EXPECT_THAT(InterfaceToBind("a1", IpOf("10.0.1.99")), IsOkAndHolds("a1"));
  EXPECT_THAT(lines_, IsEmpty());
}

TEST_F(InterfacesTest, WhereOneAnswersForTheOthersNoneIsBound) {
  SetArpIgnore("a0", 1);
  EXPECT_THAT(InterfaceToBind("a0", IpOf("10.0.1.99")), IsOkAndHolds(""));
  EXPECT_THAT(lines_, ElementsAre(AllOf(HasSubstr("socket_interface_not_bound"),
                                        HasSubstr(R"("interface":"a0")"),
                                        HasSubstr("net.ipv4.conf.a1.arp_ignore is 0"))));
}

TEST_F(InterfacesTest, InIpv6EachAnswersForItselfAnyway) {
  EXPECT_THAT(InterfaceToBind("a1", IpOf("fd00:1::99")), IsOkAndHolds("a1"));
  EXPECT_THAT(lines_, IsEmpty());
}

TEST_F(InterfacesTest, RoutesDecideForTheOthers) {
  EXPECT_THAT(InterfaceToBind("c0", IpOf("10.0.2.99")), IsOkAndHolds(""));  // alone in its subnet
  EXPECT_THAT(InterfaceToBind("c0", IpOf("10.0.1.99")), IsOkAndHolds(""));  // not in that subnet
  EXPECT_THAT(InterfaceToBind("a0", IpOf("10.0.3.99")), IsOkAndHolds(""));  // nor is any other
  EXPECT_THAT(InterfaceToBind("a0", IpOf("10.0.1.2")), IsOkAndHolds(""));   // of this host
  EXPECT_THAT(lines_, IsEmpty());
}

}  // namespace
}  // namespace crossmesh
