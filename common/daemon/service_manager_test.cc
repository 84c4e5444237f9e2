#include "common/daemon/service_manager.h"

#include "common/base/unique_fd.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_folder.h"

#include <array>
#include <cstddef>
#include <cstdlib>
#include <string>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;

class ServiceManagerTest : public testing::Test {
 protected:
  ~ServiceManagerTest() override { unsetenv("NOTIFY_SOCKET"); }

  // Listens as a service manager does; a zero byte begins the name of an abstract socket.
  void Listen(const std::string& path) {
    sockaddr_un address{.sun_family = AF_UNIX};
    path.copy(address.sun_path, sizeof(address.sun_path));
    manager_.Reset(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
    ASSERT_EQ(bind(manager_.get(), reinterpret_cast<const sockaddr*>(&address), bytes), 0);
  }

  // What was told; a datagram is there once it was sent.
  std::string Told() {
    std::array<char, 64> text;
    const ssize_t size = recv(manager_.get(), text.data(), text.size(), 0);
    return size < 0 ? "" : std::string(text.data(), size);
  }

  const TemporaryFolder folder_;
  UniqueFd manager_;
};

TEST_F(ServiceManagerTest, IsToldAtTheSocketThatItNamed) {
  const std::string path = folder_.PathOf("notify");
  Listen(path);
  setenv("NOTIFY_SOCKET", path.c_str(), 1);
  EXPECT_OK(TellServiceManager("READY=1"));
  EXPECT_EQ(Told(), "READY=1");
}

TEST_F(ServiceManagerTest, MayNameAnAbstractSocket) {
  const std::string name = absl::StrCat("crossmesh-test-", getpid());
  Listen(std::string(1, '\0') + name);
  setenv("NOTIFY_SOCKET", ("@" + name).c_str(), 1);
  EXPECT_OK(TellServiceManager("READY=1"));
  EXPECT_EQ(Told(), "READY=1");
}

TEST_F(ServiceManagerTest, WithoutOneThereIsNothingToTell) {
  unsetenv("NOTIFY_SOCKET");
  EXPECT_OK(TellServiceManager("READY=1"));
}

TEST_F(ServiceManagerTest, ASocketThatDoesNotTakeItIsNamed) {
  for (const std::string& path : {folder_.PathOf("nothing-there"), std::string(200, 'x')}) {
    setenv("NOTIFY_SOCKET", path.c_str(), 1);
    EXPECT_THAT(TellServiceManager("READY=1"),
                StatusIs(absl::StatusCode::kUnavailable, HasSubstr(path)));
  }
}

}  // namespace
}  // namespace crossmesh
