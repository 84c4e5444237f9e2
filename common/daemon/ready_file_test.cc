#include "common/daemon/ready_file.h"

#include "common/testing/status_matchers.h"

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <utility>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

namespace crossmesh {
namespace {

using testing::HasSubstr;

namespace fs = std::filesystem;

std::string PathOf(const std::string& name) {
  return absl::StrCat(testing::TempDir(), "/ready_file_test-", getpid(), "-", name);
}

TEST(ReadyFileTest, SaysWhoServesAndIsGoneAfterwards) {
  const std::string path = PathOf("serves");
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

TEST(ReadyFileTest, WithoutAPathThereIsNone) {
  EXPECT_OK(ReadyFile::Write("", {{"address", "a:1"}}).status());
  EXPECT_FALSE(fs::exists(".next"));
}

TEST(ReadyFileTest, AFileThatCannotBeWrittenIsNamedAndLeavesNothing) {
  const std::string path = PathOf("no-such-folder") + "/ready";
  EXPECT_THAT(ReadyFile::Write(path, {}).status(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr(path)));
  const std::string folder = PathOf("a-folder");
  ASSERT_TRUE(fs::create_directory(folder));
  EXPECT_THAT(ReadyFile::Write(folder, {}).status(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr(folder)));
  EXPECT_FALSE(fs::exists(folder + ".next"));
  fs::remove(folder);
}

}  // namespace
}  // namespace crossmesh
