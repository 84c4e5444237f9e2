#include "common/base/unique_fd.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace crossmesh {
namespace {

int NewFd() { return open("/dev/null", O_RDONLY | O_CLOEXEC); }
bool IsOpen(int fd) { return fcntl(fd, F_GETFD) >= 0; }

TEST(UniqueFdTest, ClosesWhatItOwns) {
  const int fd = NewFd();
  {
    const UniqueFd owner(fd);
    EXPECT_TRUE(owner.valid());
    EXPECT_TRUE(IsOpen(fd));
  }
  EXPECT_FALSE(IsOpen(fd));
}

TEST(UniqueFdTest, MovingHandsOver) {
  const int first = NewFd();
  const int second = NewFd();
  UniqueFd a(first);
  UniqueFd b(second);
  b = std::move(a);
  EXPECT_FALSE(a.valid());  // NOLINT(bugprone-use-after-move): that is the promise.
  EXPECT_EQ(b.get(), first);
  EXPECT_FALSE(IsOpen(second));
  EXPECT_TRUE(IsOpen(first));
}

TEST(UniqueFdTest, ReleaseDoesNotClose) {
  UniqueFd owner(NewFd());
  const int fd = owner.Release();
  EXPECT_FALSE(owner.valid());
  EXPECT_TRUE(IsOpen(fd));
  close(fd);
}

}  // namespace
}  // namespace crossmesh
