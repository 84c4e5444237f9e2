#include "common/base/memory_limit.h"

#include "common/base/testing/resource_limit.h"

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

class MemoryLimitTest : public testing::Test {
 protected:
  MemoryLimitTest() {
    EXPECT_NE(mkdtemp(root_.data()), nullptr) << "errno " << errno;
    machine_ = MemoryLimit(root_);
  }
  ~MemoryLimitTest() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << "\n";
  }

  std::string root_ = testing::TempDir() + "memoryXXXXXX";
  int64_t machine_ = 0;  // where there are no groups
};

TEST_F(MemoryLimitTest, IsThatOfTheMachineWhereNothingSaysLess) {
  EXPECT_GT(machine_, 0);
  EXPECT_LE(MemoryLimit(), machine_);
  Write("/proc/self/cgroup", "0::/a");
  EXPECT_EQ(MemoryLimit(root_), machine_);
  Write("/sys/fs/cgroup/a/memory.max", "max");
  EXPECT_EQ(MemoryLimit(root_), machine_);
  Write("/sys/fs/cgroup/a/memory.max", "18446744073709551615");
  EXPECT_EQ(MemoryLimit(root_), machine_);
}

TEST_F(MemoryLimitTest, IsTheLeastOfAGroupAndThoseAboveIt) {
  Write("/proc/self/cgroup", "0::/a/b");
  Write("/sys/fs/cgroup/a/b/memory.max", "3000");
  EXPECT_EQ(MemoryLimit(root_), 3000);
  Write("/sys/fs/cgroup/a/memory.max", "2000");
  EXPECT_EQ(MemoryLimit(root_), 2000);
  Write("/sys/fs/cgroup/memory.max", "1000");
  EXPECT_EQ(MemoryLimit(root_), 1000);
  Write("/sys/fs/cgroup/memory.max", "max");
  EXPECT_EQ(MemoryLimit(root_), 2000);
}

TEST_F(MemoryLimitTest, AContainerSeesItsGroupAsTheRoot) {
  Write("/proc/self/cgroup", "0::/of-the-host/container");
  Write("/sys/fs/cgroup/memory.max", "1000");
  EXPECT_EQ(MemoryLimit(root_), 1000);
}

TEST_F(MemoryLimitTest, Version1HasAHierarchyOfItsOwnForMemory) {
  Write("/proc/self/cgroup", "12:cpu,cpuacct:/c\n11:blkio,memory:/m\n0::/");
  Write("/sys/fs/cgroup/memory/m/memory.limit_in_bytes", "5000");
  Write("/sys/fs/cgroup/memory/c/memory.limit_in_bytes", "10");
  EXPECT_EQ(MemoryLimit(root_), 5000);
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712");
  EXPECT_EQ(MemoryLimit(root_), 5000);
}

TEST_F(MemoryLimitTest, WhatIsMalformedSaysNothing) {
  Write("/proc/self/cgroup", "0::/a\nx\n::\n0:memory\n7:memory:relative");
  Write("/sys/fs/cgroup/a/memory.max", "-1");
  EXPECT_EQ(MemoryLimit(root_), machine_);
}

TEST(AddressSpaceLeftTest, IsWhatTheLimitLeavesBesideWhatIsMapped) {
  EXPECT_EQ(AddressSpaceLeft(), std::numeric_limits<int64_t>::max());
  constexpr int64_t kRoom = int64_t{1} << 30;
  const ScopedResourceLimit tight(RLIMIT_AS, MappedBytes() + kRoom);
  const int64_t left = AddressSpaceLeft();
  // Some may have been mapped or unmapped since.
  EXPECT_LT(left, kRoom / 2 * 3);
  EXPECT_GT(left, kRoom / 2);
}

}  // namespace
}  // namespace crossmesh
