#include "worker/transport/socket/tcp_socket.h"

#include "common/base/log.h"
#include "common/testing/status_matchers.h"
#include "worker/transport/socket/testing/refused_calls.h"
#include "worker/transport/socket/testing/tcp_pair.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>
#include <vector>

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

IpEndpoint Ip4(char a, char b, char c, char d, uint16_t port = 0) {
  return {.ip = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, '\xff', '\xff', a, b, c, d}, .port = port};
}

IpEndpoint Loopback6() {
  IpEndpoint endpoint;
  endpoint.ip[15] = 1;
  return endpoint;
}

// Of documents: no host has it.
IpEndpoint OfNoHost() { return Ip4('\xc0', 0, 2, 1); }

auto Fails(const std::string& why) {
  return StatusIs(absl::StatusCode::kUnavailable, HasSubstr(why));
}

int Option(int fd, int level, int option) {
  int value = -1;
  socklen_t size = sizeof(value);
  EXPECT_EQ(getsockopt(fd, level, option, &value, &size), 0) << "errno " << errno;
  return value;
}

std::string CongestionControl(int fd) {
  std::array<char, 16> name = {};  // TCP_CA_NAME_MAX
  socklen_t size = name.size();
  EXPECT_EQ(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(), &size), 0)
      << "errno " << errno;
  return name.data();
}

IpEndpoint Own(int fd) {
  sockaddr_storage storage = {};
  socklen_t size = sizeof(storage);
  EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &size), 0) << "errno " << errno;
  return ToEndpoint(reinterpret_cast<sockaddr*>(&storage)).value_or(IpEndpoint());
}

TEST(ToEndpointTest, AddressesOfBothKindsAreTaken) {
  sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(7000)};
  ASSERT_EQ(inet_pton(AF_INET, "10.1.2.3", &v4.sin_addr), 1);
  EXPECT_EQ(ToEndpoint(reinterpret_cast<const sockaddr*>(&v4)), Ip4(10, 1, 2, 3, 7000));
  sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(7001)};
  ASSERT_EQ(inet_pton(AF_INET6, "fd00::1", &v6.sin6_addr), 1);
  EXPECT_EQ(
      ToEndpoint(reinterpret_cast<const sockaddr*>(&v6)),
      (IpEndpoint{.ip = {'\xfd', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}, .port = 7001}));
}

TEST(ToEndpointTest, OthersAreNone) {
  EXPECT_EQ(ToEndpoint(nullptr), std::nullopt);
  const sockaddr_storage unix_socket = {.ss_family = AF_UNIX};
  EXPECT_EQ(ToEndpoint(reinterpret_cast<const sockaddr*>(&unix_socket)), std::nullopt);
  sockaddr_in6 link_local = {.sin6_family = AF_INET6};
  ASSERT_EQ(inet_pton(AF_INET6, "fe80::1", &link_local.sin6_addr), 1);
  EXPECT_EQ(ToEndpoint(reinterpret_cast<const sockaddr*>(&link_local)), std::nullopt);
}

TEST(ListenAtTest, TheAddressIsTheOneAskedForAndThePortAFreeOne) {
  for (const IpEndpoint& asked : {Ip4(127, 0, 0, 3), Loopback6()}) {
    IpEndpoint at = asked;
    ASSERT_OK_AND_ASSIGN(const UniqueFd fd, ListenAt(at));
    EXPECT_EQ(at.ip, asked.ip);
    EXPECT_NE(at.port, 0);
    EXPECT_EQ(Own(fd.get()), at);
    EXPECT_EQ(Option(fd.get(), SOL_SOCKET, SO_ACCEPTCONN), 1);
    EXPECT_THAT(ListenAt(at), Fails("listening at " + at.ToString() + ": Address already in use"));
  }
}

TEST(ListenAtTest, WhatTheSystemRefusesIsNamed) {
  IpEndpoint elsewhere = OfNoHost();
  EXPECT_THAT(ListenAt(elsewhere),
              Fails("listening at 192.0.2.1:0: Cannot assign requested address"));
  IpEndpoint at = Ip4(127, 0, 0, 1);
  absl::Status status;
  RunRefused(SYS_socket, EMFILE, [&] { status = ListenAt(at).status(); });
  EXPECT_THAT(status, Fails("listening at 127.0.0.1:0: Too many open files"));
}

TEST(ListenAtTest, ASocketOfWhichThePortIsNotKnownIsOfNoUse) {
  absl::Status status;
  IpEndpoint at = Ip4(127, 0, 0, 1);
  RunRefused(SYS_getsockname, ENOBUFS, [&] { status = ListenAt(at).status(); });
  EXPECT_THAT(status, Fails("listening at 127.0.0.1:0: No buffer space available"));
}

TEST(ConnectFromTest, TheAddressIsTheOneAskedForAndThePortAnother) {
  const TcpPair pair(Ip4(127, 0, 0, 3, 4711), Ip4(127, 0, 0, 2));
  const IpEndpoint own = Own(pair.connected.get());
  EXPECT_EQ(own.ip, Ip4(127, 0, 0, 3).ip);
  EXPECT_NE(own.port, 4711);
  EXPECT_GE(own.port, 1024);
  EXPECT_EQ(OtherSide(pair.connected.get()), pair.at.ToString());
  EXPECT_EQ(OtherSide(pair.accepted.get()), own.ToString());
}

TEST(ConnectFromTest, Ipv6IsReachedAsWell) {
  const TcpPair pair(Loopback6(), Loopback6());
  EXPECT_EQ(OtherSide(pair.connected.get()), pair.at.ToString());
}

TEST(ConnectFromTest, BothEndsSendAtOnceAndTheSystemChoosesThePort) {
  const TcpPair pair(Ip4(127, 0, 0, 1), Ip4(127, 0, 0, 1));
  EXPECT_EQ(Option(pair.connected.get(), IPPROTO_TCP, TCP_NODELAY), 1);
  EXPECT_EQ(Option(pair.accepted.get(), IPPROTO_TCP, TCP_NODELAY), 1);
  EXPECT_EQ(Option(pair.connected.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT), 1);
}

// An address of another host, as far as the socket can know.
TEST(ConnectFromTest, BetweenHostsSilenceHasALimit) {
  constexpr int kRetransmitMaxOption = 44;  // TCP_RTO_MAX_MS
  const TcpPair pair(Ip4(127, 0, 0, 1), Ip4(127, 0, 0, 2));
  for (const int fd : {pair.connected.get(), pair.accepted.get()}) {
    EXPECT_EQ(Option(fd, SOL_SOCKET, SO_KEEPALIVE), 1);
    EXPECT_EQ(Option(fd, IPPROTO_TCP, TCP_KEEPIDLE), 5);
    EXPECT_EQ(Option(fd, IPPROTO_TCP, TCP_KEEPINTVL), 5);
    EXPECT_EQ(Option(fd, IPPROTO_TCP, TCP_KEEPCNT), 3);
    EXPECT_EQ(Option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT), 20'000);
    int value = 0;
    socklen_t size = sizeof(value);
    // Since Linux 6.15.
    if (getsockopt(fd, IPPROTO_TCP, kRetransmitMaxOption, &value, &size) == 0) {
      EXPECT_EQ(value, 1000);
    }
  }
}

TEST(ConnectFromTest, InsideAHostSilenceHasNone) {
  const TcpPair pair(Ip4(127, 0, 0, 1), Ip4(127, 0, 0, 1));
  for (const int fd : {pair.connected.get(), pair.accepted.get()}) {
    EXPECT_EQ(Option(fd, SOL_SOCKET, SO_KEEPALIVE), 0);
    EXPECT_EQ(Option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT), 0);
  }
}

TEST(ConnectFromTest, InsideAHostNothingIsPaced) {
  for (const IpEndpoint& own : {Ip4(127, 0, 0, 1), Loopback6()}) {
    const TcpPair pair(own, own);
    EXPECT_EQ(CongestionControl(pair.connected.get()), "reno");
    EXPECT_EQ(CongestionControl(pair.accepted.get()), "reno");
  }
}

TEST(ConnectFromTest, BetweenHostsCongestionControlIsTheSystems) {
  const UniqueFd any(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const TcpPair pair(Ip4(127, 0, 0, 1), Ip4(127, 0, 0, 2));
  EXPECT_EQ(CongestionControl(pair.connected.get()), CongestionControl(any.get()));
  EXPECT_EQ(CongestionControl(pair.accepted.get()), CongestionControl(any.get()));
}

TEST(ConnectFromTest, WhereNoLinkLeadsIsNamed) {
  IpEndpoint at = Ip4(127, 0, 0, 1);
  ASSERT_OK_AND_ASSIGN(const UniqueFd listener, ListenAt(at));
  const std::string doing = "connecting to " + at.ToString() + ": ";
  EXPECT_THAT(ConnectFrom(OfNoHost(), at), Fails(doing + "Cannot assign requested address"));
  EXPECT_THAT(ConnectFrom(Loopback6(), at), Fails(doing + "Address family not supported"));
  EXPECT_THAT(ConnectFrom(at, Loopback6()),
              Fails("connecting to [::1]:0: Address family not supported"));
  // From a loopback address no host is reached.
  EXPECT_THAT(ConnectFrom(Ip4(127, 0, 0, 1), OfNoHost()), Fails("connecting to 192.0.2.1:0: "));
  absl::Status status;
  RunRefused(SYS_socket, EMFILE, [&] { status = ConnectFrom(at, at).status(); });
  EXPECT_THAT(status, Fails(doing + "Too many open files"));
}

TEST(ConnectFromTest, WhatIsNotThereIsToldLater) {
  IpEndpoint at = Ip4(127, 0, 0, 1);
  ASSERT_OK(ListenAt(at));  // and nothing listens there any more
  ASSERT_OK_AND_ASSIGN(const UniqueFd fd, ConnectFrom(Ip4(127, 0, 0, 1), at));
  pollfd wait = {.fd = fd.get(), .events = POLLIN};
  ASSERT_EQ(poll(&wait, 1, 30'000), 1);
  EXPECT_EQ(Option(fd.get(), SOL_SOCKET, SO_ERROR), ECONNREFUSED);
}

class BindTest : public testing::Test {
 protected:
  static std::string BoundTo(const UniqueFd& fd) {
    std::array<char, IFNAMSIZ> name = {};
    socklen_t size = name.size();
    EXPECT_EQ(getsockopt(fd.get(), SOL_SOCKET, SO_BINDTODEVICE, name.data(), &size), 0);
    return name.data();
  }

  std::vector<std::string> lines_;

 private:
  const ScopedLogSink log_{[this](const LogRecord& record) { lines_.push_back(record.ToJson()); }};
};

TEST_F(BindTest, ASocketIsBoundToTheInterfaceGiven) {
  const IpEndpoint loopback = Ip4(127, 0, 0, 1);
  EXPECT_EQ(BoundTo(TcpPair(loopback, loopback, "lo").connected), "lo");
  EXPECT_EQ(BoundTo(TcpPair(loopback, loopback).connected), "");
  EXPECT_THAT(lines_, IsEmpty());
}

TEST_F(BindTest, OneThatTheSystemDoesNotBindConnectsAllTheSame) {
  const IpEndpoint loopback = Ip4(127, 0, 0, 1);
  EXPECT_EQ(BoundTo(TcpPair(loopback, loopback, "nosuchdevice0").connected), "");
  EXPECT_THAT(lines_, ElementsAre(AllOf(HasSubstr("socket_interface_not_bound"),
                                        HasSubstr(R"("interface":"nosuchdevice0")"),
                                        HasSubstr("No such device"))));
}

TEST(AcceptAtTest, WhereNothingCameInIsNone) {
  IpEndpoint at = Ip4(127, 0, 0, 1);
  ASSERT_OK_AND_ASSIGN(const UniqueFd listener, ListenAt(at));
  const UniqueFd none = AcceptAt(listener.get());
  const int error = errno;
  EXPECT_FALSE(none.valid());
  EXPECT_EQ(error, EAGAIN);
}

TEST(OtherSideTest, OneThatHasGoneHasNoAddress) {
  EXPECT_EQ(OtherSide(-1), "somebody who has gone");
}

}  // namespace
}  // namespace crossmesh
