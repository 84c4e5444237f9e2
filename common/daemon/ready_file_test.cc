#include "common/daemon/ready_file.h"

#include "common/testing/status_matchers.h"
#include "common/testing/temporary_folder.h"

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

namespace crossmesh {
namespace {

using testing::HasSubstr;

namespace fs = std::filesystem;

class ReadyFileTest : public testing::Test {
 protected:
  const TemporaryFolder folder_;
};

TEST_F(ReadyFileTest, SaysWhoServesAndIsGoneAfterwards) {
  const std::string path = folder_.PathOf("ready");
  std::ofstream(path) << "of another time";
  {
    ASSERT_OK_AND_ASSIGN(ReadyFile written, ReadyFile::Write(path, {{"address", "a:1"}}));
    const ReadyFile ready = std::move(written);
    std::ifstream file(path);
    EXPECT_EQ(nlohmann::json::parse(file), (nlohmann::json{{"address", "a:1"}, {"pid", getpid()}}));
    EXPECT_FALSE(fs::exists(path + ".next"));
  }
  EXPECT_FALSE(fs::exists(path));
}

TEST_F(ReadyFileTest, WithoutAPathThereIsNone) {
  EXPECT_OK(ReadyFile::Write("", {{"address", "a:1"}}).status());
  EXPECT_FALSE(fs::exists(".next"));
}

TEST_F(ReadyFileTest, AFileThatCannotBeWrittenIsNamedAndLeavesNothing) {
  const std::string path = folder_.PathOf("no-such-folder/ready");
  EXPECT_THAT(ReadyFile::Write(path, {}).status(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr(path)));
  const std::string folder = folder_.PathOf("a-folder");
  ASSERT_TRUE(fs::create_directory(folder));
  EXPECT_THAT(ReadyFile::Write(folder, {}).status(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr(folder)));
  EXPECT_FALSE(fs::exists(folder + ".next"));
}

}  // namespace
}  // namespace crossmesh
