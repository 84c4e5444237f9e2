#include "common/communicators/shared_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::Optional;

TEST(SharedMemoryTest, TheDefaultOfContainersIsFullWithTwoRanks) {
  EXPECT_EQ(SharedMemoryShortage(int64_t{64} << 20, 1), std::nullopt);
  EXPECT_THAT(
      SharedMemoryShortage(int64_t{64} << 20, 2),
      Optional(std::string("/dev/shm: expected 68.4 MB free for a communicator with 2 ranks "
                           "on this host, found 67.1 MB")));
  EXPECT_EQ(SharedMemoryShortage(int64_t{1} << 30, 8), std::nullopt);
}

}  // namespace
}  // namespace crossmesh
