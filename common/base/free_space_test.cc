#include "common/base/free_space.h"

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

TEST(FreeSpaceTest, IsThatOfAFoldersFileSystem) {
  EXPECT_GT(FreeBytesAt("/tmp"), 0);
  EXPECT_EQ(FreeBytesAt("/no/such/folder"), std::nullopt);
}

}  // namespace
}  // namespace crossmesh
