#include "worker/tasks/epoch_fence.h"

#include "common/base/testing/resource_limit.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_folder.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class EpochFenceTest : public ::testing::Test {
 protected:
  const TemporaryFolder folder_;
  const std::string path_ = folder_.PathOf("epoch");
};

TEST_F(EpochFenceTest, RefusesLowerEpochsAndNamesBoth) {
  EpochFence fence;
  ASSERT_OK(fence.Raise(7));
  EXPECT_OK(fence.Check(7));
  EXPECT_OK(fence.Check(8));
  EXPECT_THAT(fence.Check(6), StatusIs(absl::StatusCode::kFailedPrecondition,
                                       AllOf(HasSubstr("epoch 6"), HasSubstr("at least 7"))));
  EXPECT_THAT(fence.Raise(6), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_EQ(fence.highest(), 7);
}

TEST_F(EpochFenceTest, RemembersTheEpochAcrossARestart) {
  {
    ASSERT_OK_AND_ASSIGN(EpochFence fence, EpochFence::Open(path_));
    EXPECT_EQ(fence.highest(), 0);
    ASSERT_OK(fence.Raise(5));
    ASSERT_OK(fence.Raise(1'700'000'000'000'000));
  }
  ASSERT_OK_AND_ASSIGN(const EpochFence fence, EpochFence::Open(path_));
  EXPECT_EQ(fence.highest(), 1'700'000'000'000'000);
}

TEST_F(EpochFenceTest, RefusesAFileThatHoldsSomethingElse) {
  // The last one was not written to its end.
  for (const std::string text : {"12 monkeys\n", "", "\n", "12"}) {
    std::ofstream(path_) << text;
    EXPECT_THAT(EpochFence::Open(path_), StatusIs(absl::StatusCode::kDataLoss, HasSubstr(path_)))
        << text;
  }
}

TEST_F(EpochFenceTest, RefusesAFolderInTheFilesPlace) {
  EXPECT_THAT(EpochFence::Open(folder_.path()),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("read epoch file " + folder_.path())));
}

TEST_F(EpochFenceTest, OnlyItsOwnerReadsTheFile) {
  ASSERT_OK_AND_ASSIGN(EpochFence fence, EpochFence::Open(path_));
  ASSERT_OK(fence.Raise(5));
  EXPECT_EQ(std::filesystem::status(path_).permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
}

TEST_F(EpochFenceTest, AnEpochThatIsThatOfTheFileIsNotWrittenAgain) {
  ASSERT_OK_AND_ASSIGN(EpochFence fence, EpochFence::Open(path_));
  ASSERT_OK(fence.Raise(5));
  std::filesystem::remove(path_);
  EXPECT_OK(fence.Raise(5));
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(EpochFenceTest, ADiskThatIsFullLeavesTheOldFile) {
  ASSERT_OK_AND_ASSIGN(EpochFence fence, EpochFence::Open(path_));
  ASSERT_OK(fence.Raise(5));
  std::filesystem::create_symlink("/dev/full", path_ + ".next");
  EXPECT_THAT(fence.Raise(6), StatusIs(absl::StatusCode::kResourceExhausted,
                                       HasSubstr("epoch file: write " + path_ + ".next")));
  EXPECT_EQ(fence.highest(), 5);
  ASSERT_OK_AND_ASSIGN(const EpochFence again, EpochFence::Open(path_));
  EXPECT_EQ(again.highest(), 5);
}

TEST_F(EpochFenceTest, AFileThatCannotTakeTheOldOnesPlaceIsNotObeyed) {
  ASSERT_OK_AND_ASSIGN(EpochFence fence, EpochFence::Open(path_));
  std::filesystem::create_directory(path_);
  EXPECT_THAT(fence.Raise(5), StatusIs(absl::StatusCode::kFailedPrecondition,
                                       HasSubstr("epoch file: replace " + path_)));
  EXPECT_EQ(fence.highest(), 0);
}

TEST_F(EpochFenceTest, AFileOfTheWorkingFolderNeedsNoPath) {
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder_.path());
  auto fence = EpochFence::Open("epoch");
  const absl::Status raised = fence.ok() ? fence->Raise(5) : fence.status();
  std::filesystem::current_path(before);
  EXPECT_OK(raised);
  EXPECT_TRUE(std::filesystem::exists(path_));
}

TEST_F(EpochFenceTest, KeepsTheOldEpochWhenTheNewOneCannotBeWritten) {
  ASSERT_OK_AND_ASSIGN(EpochFence fence, EpochFence::Open("/no/such/folder/epoch"));
  EXPECT_THAT(fence.Raise(3), StatusIs(absl::StatusCode::kNotFound, HasSubstr("/no/such/folder")));
  EXPECT_EQ(fence.highest(), 0);
}

TEST_F(EpochFenceTest, AnEpochThatACrashMayTakeBackIsNotObeyed) {
  ASSERT_OK_AND_ASSIGN(EpochFence fence, EpochFence::Open(path_));
  absl::Status raised;
  {
    // Enough for the file, but not for the folder that is to be synced when the file has its name.
    const ScopedResourceLimit limit(RLIMIT_NOFILE, LowestFreeDescriptor() + 1);
    raised = fence.Raise(5);
  }
  EXPECT_THAT(raised, StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("sync folder")));
  EXPECT_EQ(fence.highest(), 0);
  EXPECT_OK(fence.Check(4)) << "the worker may go on with what it obeyed before";
  // Not taken as written, although it is there to be read.
  std::filesystem::remove(path_);
  ASSERT_OK(fence.Raise(5));
  ASSERT_OK_AND_ASSIGN(const EpochFence again, EpochFence::Open(path_));
  EXPECT_EQ(again.highest(), 5);
}

}  // namespace
}  // namespace crossmesh
