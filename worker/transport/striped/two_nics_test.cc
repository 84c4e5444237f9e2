// Two hosts with two NICs each, as network namespaces of this process: all NICs carry bytes. Needs
// the right to make namespaces, which root has.

#include "common/base/check.h"
#include "common/base/unique_fd.h"
#include "common/testing/status_matchers.h"
#include "worker/transport/socket/socket_transport.h"
#include "worker/transport/striped/striped_transport.h"
#include "worker/transport/testing/transport_node.h"

#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>

#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

namespace crossmesh {
namespace {

constexpr int64_t kMessageBytes = 1 << 20;
constexpr int kMessagesOverTwo = 32;

UniqueFd OpenNamespace() {
  return UniqueFd(open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
}

// Of this thread, and of the threads and processes that it makes.
void Enter(const UniqueFd& network) {
  CHECK_EQ(setns(network.get(), CLONE_NEWNET), 0) << "errno " << errno;
}

bool Shell(const std::string& command) {
  return std::system(absl::StrCat("{ ", command, "; } >/dev/null 2>&1").c_str()) == 0;
}

int64_t SentBytes(const std::string& interface) {
  std::ifstream table("/proc/thread-self/net/dev");
  for (std::string line; std::getline(table, line);) {
    char name[32];
    int64_t received = 0;
    int64_t sent = 0;
    if (std::sscanf(line.c_str(), " %31[^:]: %ld %*d %*d %*d %*d %*d %*d %*d %ld", name, &received,
                    &sent) == 3 &&
        interface == name) {
      return sent;
    }
  }
  ADD_FAILURE() << "no interface " << interface;
  return 0;
}

class TwoNicsTest : public testing::Test {
 protected:
  void SetUp() override {
    for (UniqueFd* network : {&switch_, &a_, &b_}) {
      if (unshare(CLONE_NEWNET) != 0) {
        GTEST_SKIP() << "cannot make network namespaces: " << std::strerror(errno);
      }
      *network = OpenNamespace();
      CHECK(network->valid());
    }
    Enter(switch_);
    if (!Shell("ip link add probe type veth && ip link del probe")) {
      GTEST_SKIP() << "cannot make virtual links: `ip link add type veth` fails";
    }
  }
  void TearDown() override { Enter(own_); }

  // A link from an interface of a host, with this address, to the switch.
  void Plug(const UniqueFd& host, const std::string& name, const std::string& address,
            const std::string& bridge) {
    Enter(switch_);
    const std::string there = absl::StrCat("/proc/", getpid(), "/fd/", host.get());
    ASSERT_TRUE(Shell(absl::StrCat("ip link show ", bridge, " || ip link add ", bridge,
                                   " type bridge && ip link set ", bridge, " up")));
    ASSERT_TRUE(
        Shell(absl::StrCat("ip link add port_", name, " type veth peer name ", name, " netns ",
                           there, " && ip link set port_", name, " master ", bridge, " up")));
    Enter(host);
    ASSERT_TRUE(Shell(absl::StrCat("ip link set lo up && ip address add ", address, "/24 dev ",
                                   name, " && ip link set ", name, " up")));
  }

  static std::unique_ptr<TransportNode> MakeNode(const UniqueFd& host, const std::string& first,
                                                 const std::string& second) {
    Enter(host);
    const auto nic = [](const std::string& interface) -> StripedTransport::MakeNic {
      return [interface](TransportSink& sink) {
        return SocketTransport::Create(sink, {.interface = interface});
      };
    };
    const std::array nics = {nic(first), nic(second)};
    auto node = TransportNode::Create(
        [&](TransportSink& sink) { return StripedTransport::Create(sink, nics); },
        TransportNode::Arrival::kReceive);
    CHECK_OK(node);
    return *std::move(node);
  }

  // Moves bytes from a to b; each NIC of a sends about half of them.
  void ExpectBothNicsCarryHalf() {
    const auto a = MakeNode(a_, "a0", "a1");
    const auto b = MakeNode(b_, "b0", "b1");
    ASSERT_OK_AND_ASSIGN(const PeerId to_b, a->Connect(b->address()));
    ASSERT_OK(b->Connect(a->address()));
    EXPECT_EQ(a->Lanes(to_b), 4);
    a->SendMany(to_b, kMessagesOverTwo, kMessageBytes);
    ASSERT_TRUE(b->WaitUntil(
        [](const auto& record) { return record.received.size() == kMessagesOverTwo; }));
    for (const auto& received : b->record().received) EXPECT_OK(received.status);
    EXPECT_TRUE(a->record().lost.empty());
    Enter(a_);
    for (const std::string interface : {"a0", "a1"}) {
      EXPECT_GT(SentBytes(interface), kMessagesOverTwo * kMessageBytes * 2 / 5) << interface;
    }
  }

  const UniqueFd own_ = OpenNamespace();
  UniqueFd switch_;
  UniqueFd a_;
  UniqueFd b_;
};

TEST_F(TwoNicsTest, InSubnetsOfTheirOwn) {
  Plug(a_, "a0", "10.0.1.1", "rail0");
  Plug(a_, "a1", "10.0.2.1", "rail1");
  Plug(b_, "b0", "10.0.1.2", "rail0");
  Plug(b_, "b1", "10.0.2.2", "rail1");
  ExpectBothNicsCarryHalf();
}

TEST_F(TwoNicsTest, InOneSubnet) {
  for (const UniqueFd* host : {&a_, &b_}) {
    Enter(*host);
    ASSERT_TRUE(
        Shell("cd /proc/sys/net/ipv4/conf/all && echo 1 >arp_ignore && echo 2 >arp_announce"));
  }
  Plug(a_, "a0", "10.0.1.1", "lan");
  Plug(a_, "a1", "10.0.1.2", "lan");
  Plug(b_, "b0", "10.0.1.3", "lan");
  Plug(b_, "b1", "10.0.1.4", "lan");
  ExpectBothNicsCarryHalf();
}

TEST_F(TwoNicsTest, AHostOfWhichOneNicIsUnpluggedIsLost) {
  Plug(a_, "a0", "10.0.1.1", "rail0");
  Plug(a_, "a1", "10.0.2.1", "rail1");
  Plug(b_, "b0", "10.0.1.2", "rail0");
  Plug(b_, "b1", "10.0.2.2", "rail1");
  const auto a = MakeNode(a_, "a0", "a1");
  const auto b = MakeNode(b_, "b0", "b1");
  ASSERT_OK_AND_ASSIGN(const PeerId to_b, a->Connect(b->address()));
  a->SendMany(to_b, kMessagesOverTwo, kMessageBytes);
  ASSERT_TRUE(
      b->WaitUntil([](const auto& record) { return record.received.size() == kMessagesOverTwo; }));
  Enter(switch_);
  ASSERT_TRUE(Shell("ip link set port_a1 down"));
  const Ticket first = a->SendMany(to_b, kMessagesOverTwo, kMessageBytes);
  ASSERT_TRUE(a->WaitUntil([](const auto& record) { return !record.lost.empty(); }));
  const TransportRecord record = a->record();
  EXPECT_EQ(record.lost[0].peer, to_b);
  EXPECT_EQ(record.lost[0].sends_open, 0);
  int failed = 0;
  for (Ticket ticket = first; ticket < first + kMessagesOverTwo; ++ticket) {
    failed += record.sent.at(ticket).ok() ? 0 : 1;
  }
  EXPECT_GT(failed, 0);
}

}  // namespace
}  // namespace crossmesh
