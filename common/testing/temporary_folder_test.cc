#include "common/testing/temporary_folder.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

namespace fs = std::filesystem;

TEST(TemporaryFolderTest, ItIsThereAsLongAsItsOwner) {
  std::string path;
  {
    const TemporaryFolder folder;
    path = folder.path();
    EXPECT_TRUE(fs::is_empty(path));
    fs::create_directory(folder.PathOf("inner"));
    std::ofstream(folder.PathOf("inner/file")) << "text";
    EXPECT_TRUE(fs::exists(path + "/inner/file"));
  }
  EXPECT_FALSE(fs::exists(path));
}

TEST(TemporaryFolderTest, EachIsItsOwn) {
  EXPECT_NE(TemporaryFolder().path(), TemporaryFolder().path());
}

}  // namespace
}  // namespace crossmesh
