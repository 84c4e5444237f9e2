#include "common/daemon/ready_file.h"

#include "common/testing/status_matchers.h"
#include "common/testing/temporary_folder.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <unistd.h>

namespace crossmesh {
namespace {

using testing::AllOf;
using testing::HasSubstr;

namespace fs = std::filesystem;

class ReadyFileTest : public testing::Test {
 protected:
  const TemporaryFolder folder_;
};

TEST_F(ReadyFileTest, SaysWhatServesAndIsGoneAfterwards) {
  const std::string path = folder_.PathOf("ready");
  {
    ASSERT_OK_AND_ASSIGN(ReadyFile claimed, ReadyFile::Claim(path));
    ReadyFile ready = std::move(claimed);
    EXPECT_FALSE(fs::exists(path));
    ASSERT_OK(ready.Write({{"address", "a:1"}}));
    std::ifstream file(path);
    EXPECT_EQ(nlohmann::json::parse(file), (nlohmann::json{{"address", "a:1"}, {"pid", getpid()}}));
    EXPECT_FALSE(fs::exists(path + ".next"));
  }
  EXPECT_TRUE(fs::is_empty(folder_.path()));
}

TEST_F(ReadyFileTest, WithoutAPathThereIsNone) {
  ASSERT_OK_AND_ASSIGN(ReadyFile ready, ReadyFile::Claim(""));
  EXPECT_OK(ready.Write({{"address", "a:1"}}));
  EXPECT_FALSE(fs::exists(".next"));
}

TEST_F(ReadyFileTest, WhatAnEndedProcessHasLeftMakesWayBeforeAnythingServes) {
  const std::string path = folder_.PathOf("ready");
  std::ofstream(path) << "of another time, and longer than what is written in its place";
  std::ofstream(path + ".next") << "of a process that was killed before it was ready, and longer";
  ASSERT_OK_AND_ASSIGN(ReadyFile ready, ReadyFile::Claim(path));
  EXPECT_FALSE(fs::exists(path));
  ASSERT_OK(ready.Write({}));
  std::ifstream file(path);
  EXPECT_EQ(nlohmann::json::parse(file), (nlohmann::json{{"pid", getpid()}}));
}

TEST_F(ReadyFileTest, TheFileOfAProcessThatLivesStaysItsOwn) {
  const std::string path = folder_.PathOf("ready");
  const auto refused = StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr(path));
  {
    ASSERT_OK_AND_ASSIGN(ReadyFile ready, ReadyFile::Claim(path));
    EXPECT_THAT(ReadyFile::Claim(path).status(), refused);
    ASSERT_OK(ready.Write({{"address", "a:1"}}));
    EXPECT_THAT(ReadyFile::Claim(path).status(), refused);
    std::ifstream file(path);
    EXPECT_EQ(nlohmann::json::parse(file)["address"], "a:1");
    EXPECT_FALSE(fs::exists(path + ".next"));
  }
  EXPECT_OK(ReadyFile::Claim(path).status());
}

TEST_F(ReadyFileTest, AFileThatIsAnothersByTheEndIsLeftToIt) {
  const std::string path = folder_.PathOf("ready");
  {
    ASSERT_OK_AND_ASSIGN(ReadyFile ready, ReadyFile::Claim(path));
    ASSERT_OK(ready.Write({}));
    ASSERT_TRUE(fs::remove(path));
    std::ofstream(path) << "another's";
  }
  EXPECT_TRUE(fs::exists(path));
}

TEST_F(ReadyFileTest, WhatIsNoRegularFileIsLeftAlone) {
  const std::string pipe = folder_.PathOf("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const std::string link = folder_.PathOf("link");
  fs::create_symlink("/dev/null", link);
  const std::string a_folder = folder_.PathOf("a-folder");
  ASSERT_TRUE(fs::create_directory(a_folder));
  for (const std::string& path : {pipe, link, a_folder}) {
    EXPECT_THAT(ReadyFile::Claim(path).status(),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         AllOf(HasSubstr(path), HasSubstr("found another kind of file"))));
    EXPECT_TRUE(fs::exists(path));
    EXPECT_FALSE(fs::exists(path + ".next"));
  }
  EXPECT_TRUE(fs::is_symlink(link));
}

TEST_F(ReadyFileTest, AFileThatCannotBeMadeIsNamed) {
  const std::string path = folder_.PathOf("no-such-folder/ready");
  EXPECT_THAT(ReadyFile::Claim(path).status(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr(path)));
}

}  // namespace
}  // namespace crossmesh
