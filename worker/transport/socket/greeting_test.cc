// What a SocketTransport does with connections that come in, until they have said what they are.

#include "common/base/check.h"
#include "common/base/log.h"
#include "common/testing/status_matchers.h"
#include "worker/transport/socket/network_interface.h"
#include "worker/transport/socket/tcp_socket.h"
#include "worker/transport/socket/testing/driven_transport.h"
#include "worker/transport/socket/testing/raw_peer.h"
#include "worker/transport/socket/testing/refused_calls.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// The timer of the one transport of this process, as the system has it.
struct Timer {
  int flags = -1;
  int64_t left_ns = -1;
  int64_t interval_ns = -1;
};

int64_t Nanoseconds(const std::string& line) {
  long long seconds = 0;
  long long rest = 0;
  EXPECT_EQ(std::sscanf(line.c_str(), "%*[^(](%lld, %lld)", &seconds, &rest), 2) << line;
  return seconds * 1'000'000'000 + rest;
}

Timer ReadTimer() {
  Timer timer;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    if (std::filesystem::read_symlink(entry, gone) != "anon_inode:[timerfd]") continue;
    std::ifstream lines("/proc/self/fdinfo" / entry.path().filename());
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("settime flags:")) timer.flags = std::stoi(line.substr(14));
      if (line.starts_with("it_value:")) timer.left_ns = Nanoseconds(line);
      if (line.starts_with("it_interval:")) timer.interval_ns = Nanoseconds(line);
    }
  }
  return timer;
}

class GreetingTest : public testing::Test {
 protected:
  GreetingTest() { Start({}); }

  void Start(const DrivenTransport::Options& options) {
    node_.reset();
    node_ = std::make_unique<DrivenTransport>(options);
  }

  RawPeer MakePeer() const { return RawPeer::To((*node_)->address()); }
  // A connection that says nothing, and does not block.
  UniqueFd MakeSilent() const {
    const SocketAddress address = *SocketAddress::Decode((*node_)->address());
    UniqueFd fd = *ConnectFrom(*FindInterface("lo"), address.endpoint);
    pollfd wait = {.fd = fd.get(), .events = POLLOUT};
    EXPECT_EQ(poll(&wait, 1, 30'000), 1);
    return fd;
  }
  static bool IsOpen(const UniqueFd& silent) {
    char byte = 0;
    return recv(silent.get(), &byte, 1, MSG_PEEK) < 0 && errno == EAGAIN;
  }
  static bool WaitClosed(const UniqueFd& silent) {
    pollfd wait = {.fd = silent.get(), .events = POLLIN};
    char byte = 0;
    return poll(&wait, 1, 30'000) == 1 && recv(silent.get(), &byte, 1, 0) == 0;
  }
  // Steps until nothing is left to do.
  void Settle() {
    while (node_->IsReadable()) (*node_)->Progress();
  }
  static void Announce(RawPeer& peer, uint64_t sequence) {
    peer.Send(FrameHeader{.kind = FrameKind::kAnnounce});
    peer.Send(MessageHeader{.sequence = sequence});
  }
  bool WaitMessages(size_t count) {
    return DrivenTransport::Run({node_.get()},
                                [&] { return node_->sink.messages.size() == count; });
  }

  std::vector<std::string> lines_;
  std::unique_ptr<DrivenTransport> node_;

 private:
  const ScopedLogSink log_{[this](const LogRecord& record) { lines_.push_back(record.ToJson()); }};
};

TEST_F(GreetingTest, NoMoreThan256WaitForTheirHandshake) {
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 256; ++i) silent.push_back(MakeSilent());
  Settle();
  EXPECT_THAT(lines_, IsEmpty());
  const UniqueFd refused = MakeSilent();
  node_->WaitAndProgress();
  EXPECT_TRUE(WaitClosed(refused));
  EXPECT_TRUE(std::ranges::all_of(silent, IsOpen));
  EXPECT_THAT(lines_, ElementsAre(AllOf(HasSubstr("socket_connection_refused"),
                                        HasSubstr(R"("without_handshake_max":256)"))));
  // One that has gone makes place.
  silent.pop_back();
  node_->WaitAndProgress();
  const UniqueFd accepted = MakeSilent();
  node_->WaitAndProgress();
  EXPECT_TRUE(IsOpen(accepted));
  EXPECT_EQ(lines_.size(), 1);
}

TEST_F(GreetingTest, OneThatIsRefusedDoesNotTouchTheOthers) {
  RawPeer first = MakePeer();
  RawPeer second = MakePeer();
  RawPeer third = MakePeer();
  second.SendBytes(std::string(64, 'x'));
  second.WaitDelivered();
  ASSERT_TRUE(DrivenTransport::Run({node_.get()}, [&] { return !lines_.empty(); }));
  second.WaitClosed();
  EXPECT_THAT(lines_, ElementsAre(AllOf(HasSubstr("socket_connection_malformed"),
                                        HasSubstr("expected magic"))));
  uint64_t number = 0;
  for (RawPeer* peer : {&third, &first}) {
    SocketHandshake handshake = peer->Handshake();
    handshake.number = ++number;
    peer->Send(handshake);
    Announce(*peer, number);
  }
  EXPECT_TRUE(WaitMessages(2));
}

TEST_F(GreetingTest, ANumberIsNotUsedAgainAfterTheEndOfItsConnection) {
  for (const int attempt : {1, 2}) {
    RawPeer peer = MakePeer();
    peer.Send(peer.Handshake());
    if (attempt == 1) peer.Send(FrameHeader{.kind = FrameKind{9}});
    if (attempt == 2) Announce(peer, 1);
    peer.WaitDelivered();
    Settle();
    peer.WaitClosed();
  }
  EXPECT_THAT(node_->sink.messages, IsEmpty());
  // Only the first was a mistake.
  EXPECT_THAT(lines_, ElementsAre(HasSubstr("found 9")));
  RawPeer next = MakePeer();
  SocketHandshake handshake = next.Handshake();
  handshake.number = 2;
  next.Send(handshake);
  Announce(next, 1);
  EXPECT_TRUE(WaitMessages(1));
}

TEST_F(GreetingTest, ANumberThatThisSideHasEndedIsRefused) {
  RawPeer listening = RawPeer::Listening();
  ASSERT_OK_AND_ASSIGN(const PeerId id, (*node_)->Connect(listening.address()));
  (*node_)->Disconnect(id);
  for (const uint64_t number : {1, 2}) {
    RawPeer peer = MakePeer();
    SocketHandshake handshake = peer.Handshake();
    handshake.from = TransportNonce();  // that of the one that listens
    handshake.number = number;
    peer.Send(handshake);
    Announce(peer, number);
    if (number == 1) {
      peer.WaitDelivered();
      Settle();
      peer.WaitClosed();
      EXPECT_THAT(node_->sink.messages, IsEmpty());
    } else {
      EXPECT_TRUE(WaitMessages(1));
    }
  }
  EXPECT_THAT(lines_, IsEmpty());
}

TEST_F(GreetingTest, TheEndOfOneThatThisSideDidNotMakeIsNoLossOfAPeer) {
  RawPeer listening = RawPeer::Listening();
  ASSERT_OK_AND_ASSIGN(const PeerId id, (*node_)->Connect(listening.address()));
  EXPECT_EQ(id, PeerId(1));
  RawPeer peer = MakePeer();
  peer.Send(peer.Handshake());
  peer.Send(FrameHeader{.kind = FrameKind{9}});
  ASSERT_TRUE(DrivenTransport::Run({node_.get()}, [&] { return !lines_.empty(); }));
  while ((*node_)->Progress() > 0) {
  }
  EXPECT_THAT(node_->sink.TakeEvents(), IsEmpty());
  node_->Send(id, 1, "abc");
  (*node_)->Progress();
  EXPECT_THAT(node_->sink.TakeEvents(), ElementsAre("sent 1 OK"));
}

// Its memory is not wanted, so that nothing is to be said of it.
TEST_F(GreetingTest, WithoutSharedMemoryTheFileOfThePeerIsNotLookedFor) {
  RawPeer peer = MakePeer();
  SocketHandshake handshake = peer.Handshake();
  handshake.nonce_file.fd = 1 << 20;
  peer.Send(handshake);
  Announce(peer, 1);
  EXPECT_TRUE(WaitMessages(1));
  EXPECT_THAT(lines_, IsEmpty());
}

TEST_F(GreetingTest, AFileThatIsNotThePeersIsSaid) {
  Start({.shared_memory = true});
  RawPeer peer = MakePeer();
  SocketHandshake handshake = peer.Handshake();
  handshake.shared_memory = 1;
  handshake.nonce_file.fd = 1 << 20;
  peer.Send(handshake);
  Announce(peer, 1);
  EXPECT_TRUE(WaitMessages(1));
  EXPECT_THAT(lines_,
              ElementsAre(AllOf(HasSubstr("shared_memory_refused"), HasSubstr("/fd/1048576"))));
}

TEST_F(GreetingTest, OneThatCannotBeWatchedIsClosed) {
  const UniqueFd silent = MakeSilent();
  RunRefused(SYS_epoll_ctl, ENOSPC, [&] { node_->WaitAndProgress(); });
  EXPECT_TRUE(WaitClosed(silent));
  EXPECT_EQ(ReadTimer().interval_ns, 0);
}

TEST_F(GreetingTest, TheTimerRunsWhileOneWaitsAndOthersDoNotPutItOff) {
  constexpr int64_t kHour = 3600LL * 1'000'000'000;
  EXPECT_EQ(ReadTimer().interval_ns, 0);
  const UniqueFd first = MakeSilent();
  node_->WaitAndProgress();
  Timer timer = ReadTimer();
  EXPECT_EQ(timer.flags, 0);
  EXPECT_EQ(timer.interval_ns, kHour);
  EXPECT_GT(timer.left_ns, 0);
  while (timer.left_ns > kHour - 20'000'000) timer = ReadTimer();
  const UniqueFd second = MakeSilent();
  node_->WaitAndProgress();
  EXPECT_LE(ReadTimer().left_ns, timer.left_ns);
}

TEST_F(GreetingTest, OneIsClosedByTheSecondTickThatItSees) {
  Start({.handshake_limit = absl::Milliseconds(1)});
  const UniqueFd silent = MakeSilent();
  EXPECT_EQ(node_->WaitAndProgress(), 1);  // it accepts
  EXPECT_EQ(node_->WaitAndProgress(), 1);  // it ticks
  EXPECT_TRUE(IsOpen(silent));
  EXPECT_EQ(ReadTimer().interval_ns, 1'000'000);
  EXPECT_THAT(lines_, IsEmpty());
  EXPECT_EQ(node_->WaitAndProgress(), 1);
  EXPECT_TRUE(WaitClosed(silent));
  EXPECT_THAT(lines_, ElementsAre(HasSubstr("expected a handshake within 1ms, found none")));
  EXPECT_EQ(ReadTimer().interval_ns, 0);
  EXPECT_EQ(ReadTimer().left_ns, 0);
}

TEST_F(GreetingTest, TheTimerStopsWhenNoneWaits) {
  Start({.handshake_limit = absl::Milliseconds(1)});
  RawPeer peer = MakePeer();
  peer.Send(peer.Handshake());
  Announce(peer, 1);
  ASSERT_TRUE(WaitMessages(1));
  ASSERT_TRUE(DrivenTransport::Run({node_.get()}, [] { return ReadTimer().interval_ns == 0; }));
  EXPECT_EQ(ReadTimer().left_ns, 0);
  EXPECT_THAT(lines_, IsEmpty());
}

TEST_F(GreetingTest, WithoutDescriptorsItAcceptsNoMoreUntilTheNextTick) {
  const UniqueFd silent = MakeSilent();
  RunRefused(SYS_accept4, EMFILE, [&] { EXPECT_EQ(node_->WaitAndProgress(), 1); });
  EXPECT_FALSE(node_->IsReadable());
  EXPECT_THAT(lines_, ElementsAre(AllOf(HasSubstr("socket_accept_failed"),
                                        HasSubstr(absl::StrCat("\"errno\":", EMFILE)))));
  EXPECT_GT(ReadTimer().interval_ns, 0);
  EXPECT_TRUE(IsOpen(silent));
}

TEST_F(GreetingTest, AfterThatTickItAcceptsAgain) {
  Start({.handshake_limit = absl::Milliseconds(1)});
  RawPeer peer = MakePeer();
  peer.Send(peer.Handshake());
  Announce(peer, 1);
  peer.WaitDelivered();
  RunRefused(SYS_accept4, EMFILE, [&] { EXPECT_EQ(node_->WaitAndProgress(), 1); });
  EXPECT_THAT(lines_, ElementsAre(HasSubstr("socket_accept_failed")));
  EXPECT_TRUE(WaitMessages(1));
}

TEST_F(GreetingTest, AConnectionThatWasGivenUpBeforeItWasTakenIsNoReasonToPause) {
  const UniqueFd silent = MakeSilent();
  for (const int error : {ECONNABORTED, EINTR}) {
    RunRefused(SYS_accept4, error, [&] { EXPECT_EQ(node_->WaitAndProgress(), 1); });
    EXPECT_TRUE(node_->IsReadable());
  }
  EXPECT_THAT(lines_, IsEmpty());
  EXPECT_EQ(ReadTimer().interval_ns, 0);
}

}  // namespace
}  // namespace crossmesh
