#include "common/rpc/connection_acceptor.h"

#include "common/base/check.h"
#include "common/base/fake_clock.h"
#include "common/base/log.h"
#include "common/base/testing/resource_limit.h"
#include "common/rpc/address.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_folder.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;

// Clang's sanitizer of undefined behaviour opens a pipe before it looks at an object, and calls
// what it cannot look at an error.
#ifdef __has_feature
constexpr bool kLooksNeedDescriptors = __has_feature(undefined_behavior_sanitizer);
#else
constexpr bool kLooksNeedDescriptors = false;
#endif

class ConnectionAcceptorTest : public testing::Test {
 protected:
  void Start(const ConnectionAcceptor::Options& options) {
    absl::StatusOr<ListeningAddress> listening =
        ListenOn(*ParseRpcAddress(absl::StrCat("unix:", path_)), absl::Seconds(3));
    CHECK_OK(listening);
    std::vector<ListeningAddress> addresses;
    addresses.push_back(*std::move(listening));
    auto acceptor = ConnectionAcceptor::Create(*loop_, clock_, std::move(addresses), options);
    CHECK_OK(acceptor);
    acceptor_ = *std::move(acceptor);
    acceptor_->Start(
        {.take = [this](UniqueFd connection) { taken_.push_back(std::move(connection)); },
         .refused = [this](ConnectionRefusal reason) { ++refused_[static_cast<size_t>(reason)]; },
         .accepting_changed = [this](bool accepting) { accepting_.push_back(accepting); }});
  }
  // Over the Unix socket; what is sent first is there when this returns.
  UniqueFd Connect(const std::string& said) const {
    UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    CHECK(fd.valid()) << "errno " << errno;
    sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = {}};
    path_.copy(address.sun_path, sizeof(address.sun_path) - 1);
    CHECK_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    Say(fd, said);
    return fd;
  }
  static void Say(const UniqueFd& fd, const std::string& said) {
    CHECK_EQ(send(fd.get(), said.data(), said.size(), MSG_NOSIGNAL), std::ssize(said));
  }
  // Does what is to be done by now.
  void Run() {
    while (loop_->RunOnce(absl::ZeroDuration()) > 0) {
    }
  }
  int64_t RefusedFor(ConnectionRefusal reason) const {
    return refused_[static_cast<size_t>(reason)];
  }
  static bool IsClosed(const UniqueFd& client) {
    char byte = 0;
    const ssize_t size = recv(client.get(), &byte, 1, MSG_DONTWAIT);
    return size == 0 || (size < 0 && errno == ECONNRESET);
  }

  const TemporaryFolder folder_;
  const std::string path_ = folder_.PathOf("s");
  FakeClock clock_;
  const std::unique_ptr<EventLoop> loop_ = *EventLoop::Create(clock_, {});
  std::unique_ptr<ConnectionAcceptor> acceptor_;
  std::vector<UniqueFd> taken_;
  std::array<int64_t, std::size(kConnectionRefusals)> refused_ = {};
  std::vector<bool> accepting_;
};

TEST_F(ConnectionAcceptorTest, HandsOverWhatHasSaidSomething) {
  Start({});
  const UniqueFd speaking = Connect("a");
  const UniqueFd silent = Connect("");
  Run();
  EXPECT_EQ(taken_.size(), 1U);
  Say(silent, "later");
  Run();
  ASSERT_EQ(taken_.size(), 2U);
  char first = 0;
  EXPECT_EQ(recv(taken_[1].get(), &first, 1, MSG_DONTWAIT), 1);
  EXPECT_EQ(first, 'l');
}

TEST_F(ConnectionAcceptorTest, AClientThatGoesWithoutAWordIsForgotten) {
  Start({.silent_max = 1});
  for (int i = 0; i < 3; ++i) {
    Connect("");
    Run();
  }
  EXPECT_EQ(RefusedFor(ConnectionRefusal::kSilent), 0);
  EXPECT_TRUE(taken_.empty());
}

TEST_F(ConnectionAcceptorTest, SilenceEndsAfterItsTime) {
  Start({.silence_max = absl::Seconds(10)});
  const UniqueFd first = Connect("");
  Run();
  clock_.Advance(absl::Seconds(6));
  const UniqueFd second = Connect("");
  Run();
  clock_.Advance(absl::Seconds(4));
  Run();
  EXPECT_TRUE(IsClosed(first));
  EXPECT_FALSE(IsClosed(second));
  clock_.Advance(absl::Seconds(6));
  Run();
  EXPECT_TRUE(IsClosed(second));
  EXPECT_EQ(RefusedFor(ConnectionRefusal::kSilent), 2);
}

TEST_F(ConnectionAcceptorTest, AFurtherSilentConnectionEndsTheOldest) {
  Start({.silent_max = 3});
  std::vector<UniqueFd> clients;
  for (int i = 0; i < 5; ++i) {
    clients.push_back(Connect(""));
    Run();
  }
  std::vector<bool> closed;
  for (const UniqueFd& client : clients) closed.push_back(IsClosed(client));
  EXPECT_THAT(closed, ElementsAre(true, true, false, false, false));
  EXPECT_EQ(RefusedFor(ConnectionRefusal::kSilent), 2);
  // One that speaks is served, however many are silent.
  const UniqueFd speaking = Connect("a");
  Run();
  EXPECT_EQ(taken_.size(), 1U);
  EXPECT_TRUE(accepting_.empty());
}

// As workers on a busy machine that come back all at once.
TEST_F(ConnectionAcceptorTest, ACrowdThatIsSlowToSpeakIsHeardToTheLast) {
  const ScopedResourceLimit limit(RLIMIT_NOFILE, 4096);
  Start({});
  std::vector<UniqueFd> clients;
  for (int i = 0; i < 1000; ++i) {
    clients.push_back(Connect(""));
    Run();
  }
  ASSERT_EQ(RefusedFor(ConnectionRefusal::kSilent), 0);
  for (const UniqueFd& client : clients) Say(client, "a");
  Run();
  EXPECT_EQ(taken_.size(), clients.size());
}

TEST_F(ConnectionAcceptorTest, SilentConnectionsHaveAQuarterOfTheDescriptors) {
  Start({});
  const rlim_t descriptors = std::max<rlim_t>(4 * LowestFreeDescriptor(), 256);
  const ScopedResourceLimit limit(RLIMIT_NOFILE, descriptors);
  const auto quarter = static_cast<int64_t>(descriptors / 4);
  // Each connection has two descriptors in this process.
  std::vector<UniqueFd> clients;
  while (std::ssize(clients) < quarter) {
    clients.push_back(Connect(""));
    Run();
  }
  EXPECT_FALSE(IsClosed(clients.front()));
  const UniqueFd further = Connect("");
  Run();
  EXPECT_TRUE(IsClosed(clients.front()));
  EXPECT_FALSE(IsClosed(clients[1]));
}

TEST_F(ConnectionAcceptorTest, ConnectionsLeaveDescriptorsFree) {
  Start({.reserve = 8, .refusing_for = absl::Seconds(1)});
  // Each connection has two descriptors in this process.
  const ScopedResourceLimit limit(RLIMIT_NOFILE, std::max<rlim_t>(LowestFreeDescriptor() + 20, 64));
  std::vector<UniqueFd> clients;
  std::vector<LogRecord> warnings;
  const ScopedLogSink sink([&](const LogRecord& record) {
    if (record.level == LogLevel::kWarning) warnings.push_back(record);
  });
  while (accepting_.empty()) {
    clients.push_back(Connect("a"));
    Run();
  }
  EXPECT_THAT(accepting_, ElementsAre(false));
  EXPECT_TRUE(IsClosed(clients.back()));
  for (int i = 0; i < 3; ++i) {
    Connect("a");
    Run();
  }
  EXPECT_EQ(RefusedFor(ConnectionRefusal::kDescriptors), 4);
  EXPECT_EQ(warnings.size(), 1U);

  const size_t before = taken_.size();
  taken_.clear();
  clients.clear();
  const UniqueFd next = Connect("a");
  Run();
  EXPECT_EQ(taken_.size(), 1U) << "after " << before;
  clock_.Advance(absl::Seconds(1));
  Run();
  EXPECT_THAT(accepting_, ElementsAre(false, true));
}

TEST_F(ConnectionAcceptorTest, AcceptsAgainAfterThereWereNoDescriptorsAtAll) {
  if (kLooksNeedDescriptors) GTEST_SKIP() << "a sanitizer that needs descriptors itself";
  Start({.retry_pause = absl::Milliseconds(100), .refusing_for = absl::Milliseconds(50)});
  const UniqueFd waiting = Connect("a");
  {
    const ScopedResourceLimit limit(RLIMIT_NOFILE, LowestFreeDescriptor());
    // Some rounds: without a pause the loop would have something to do for ever.
    Run();
    EXPECT_TRUE(taken_.empty());
    EXPECT_THAT(accepting_, ElementsAre(false));
    clock_.Advance(absl::Milliseconds(100));
    Run();
    EXPECT_TRUE(taken_.empty());
  }
  clock_.Advance(absl::Milliseconds(100));
  Run();
  EXPECT_EQ(taken_.size(), 1U);
  clock_.Advance(absl::Milliseconds(50));
  Run();
  EXPECT_TRUE(accepting_.back());
}

}  // namespace
}  // namespace crossmesh
