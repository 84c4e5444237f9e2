#include "common/base/unix_listener.h"

#include "common/base/check.h"
#include "common/base/thread.h"
#include "common/base/unique_fd.h"

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;

class UnixListenerTest : public testing::Test {
 protected:
  ~UnixListenerTest() override { std::filesystem::remove_all(folder_); }

  static void ExpectRefused(const std::string& path, int type, const std::string& why) {
    const absl::Status status = UnixListener::Listen(path, type).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(status.message(), HasSubstr(path));
    EXPECT_THAT(status.message(), HasSubstr(why));
  }
  static UnixListener MustListen(const std::string& path, int type) {
    absl::StatusOr<UnixListener> listener = UnixListener::Listen(path, type);
    CHECK_OK(listener);
    return *std::move(listener);
  }
  // What a client gets: 0 or errno.
  int Connect(int type = SOCK_STREAM) const {
    const UniqueFd fd(socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
    sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
    path_.copy(address.sun_path, sizeof(address.sun_path) - 1);
    return connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 ? 0
                                                                                          : errno;
  }
  // As a process that is killed leaves it.
  void LeaveAStaleSocket() const {
    const UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
    path_.copy(address.sun_path, sizeof(address.sun_path) - 1);
    ASSERT_EQ(bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    ASSERT_EQ(listen(fd.get(), 1), 0);
  }

  // For which a module below this one has no class.
  static std::string MakeFolder() {
    std::string name = testing::TempDir() + "listenerXXXXXX";
    EXPECT_NE(mkdtemp(name.data()), nullptr) << "errno " << errno;
    return name;
  }

  const std::string folder_ = MakeFolder();
  const std::string path_ = folder_ + "/s";
};

TEST_F(UnixListenerTest, ListensForItsOwnUserAndLeavesNoFile) {
  {
    const UnixListener listener = MustListen(path_, SOCK_STREAM);
    struct stat found = {};
    ASSERT_EQ(stat(path_.c_str(), &found), 0);
    EXPECT_EQ(found.st_mode & 0777, 0600U);
    EXPECT_EQ(Connect(), 0);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(UnixListenerTest, NothingIsTakenFromAServerThatLives) {
  for (const int type : {SOCK_STREAM, SOCK_SEQPACKET}) {
    const UnixListener listener = MustListen(path_, type);
    for (const int other : {SOCK_STREAM, SOCK_SEQPACKET}) {
      ExpectRefused(path_, other, "another server listens");
    }
    EXPECT_EQ(Connect(type), 0);
  }
}

TEST_F(UnixListenerTest, AServerWhoseQueueIsFullLives) {
  const UnixListener listener = MustListen(path_, SOCK_STREAM);
  ASSERT_EQ(listen(listener.fd(), 0), 0);  // a queue of one
  const UniqueFd waiting(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  path_.copy(address.sun_path, sizeof(address.sun_path) - 1);
  ASSERT_EQ(connect(waiting.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  ExpectRefused(path_, SOCK_STREAM, "another server listens");
}

TEST_F(UnixListenerTest, WhatNothingListensOnMakesWay) {
  LeaveAStaleSocket();
  const UnixListener listener = MustListen(path_, SOCK_SEQPACKET);
  EXPECT_EQ(Connect(SOCK_SEQPACKET), 0);
}

TEST_F(UnixListenerTest, APathThatIsAnothersByNowIsLeftToIt) {
  UnixListener first = MustListen(path_, SOCK_STREAM);
  ASSERT_EQ(unlink(path_.c_str()), 0);
  const UnixListener second = MustListen(path_, SOCK_STREAM);
  first.Close();
  first.Close();
  EXPECT_EQ(Connect(), 0);
}

TEST_F(UnixListenerTest, AMovedListenerStillHasItsPath) {
  UnixListener first = MustListen(path_, SOCK_STREAM);
  std::optional<UnixListener> second(std::move(first));
  first.Close();  // NOLINT(bugprone-use-after-move): what was moved from has nothing to close
  EXPECT_EQ(Connect(), 0);
  second.reset();
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(UnixListenerTest, OfManyThatStartAtOnceOneListens) {
  LeaveAStaleSocket();
  std::atomic<int> listening = 0;
  std::atomic<int> refused = 0;
  constexpr int kStarts = 16;
  std::vector<std::optional<UnixListener>> listeners(kStarts);
  std::vector<Thread> starts;
  for (std::optional<UnixListener>& listener : listeners) {
    starts.emplace_back("start", [&, path = path_] {
      absl::StatusOr<UnixListener> made = UnixListener::Listen(path, SOCK_STREAM);
      ++(made.ok() ? listening : refused);
      if (made.ok()) listener.emplace(*std::move(made));
    });
  }
  for (Thread& start : starts) start.Join();
  EXPECT_EQ(listening, 1);
  EXPECT_EQ(refused, kStarts - 1);
  EXPECT_EQ(Connect(), 0);
}

TEST_F(UnixListenerTest, AFileThatIsNoSocketStays) {
  std::ofstream(path_) << "precious";
  ExpectRefused(path_, SOCK_STREAM, "found another file");
  EXPECT_TRUE(std::filesystem::is_regular_file(path_));
}

TEST_F(UnixListenerTest, PathsThatCannotBeAreNamed) {
  ExpectRefused(folder_ + "/none/s", SOCK_STREAM, "No such file");
  for (const std::string& path : {std::string(), std::string(108, 'x')}) {
    const absl::Status status = UnixListener::Listen(path, SOCK_STREAM).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("expected 1 to 107 bytes, found"));
  }
}

}  // namespace
}  // namespace crossmesh
