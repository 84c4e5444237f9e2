#include "worker/gpu/process/child_output.h"

#include "common/testing/status_matchers.h"

#include <memory>
#include <string>
#include <utility>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::StartsWith;

class ChildOutputTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(ChildOutput::Made made, ChildOutput::Create());
    output_ = std::move(made.output);
    child_ = std::move(made.end);
  }
  bool IsReadable() const {
    pollfd event = {.fd = output_->event_fd(), .events = POLLIN, .revents = 0};
    return poll(&event, 1, 0) == 1;
  }
  // As a child does; whether there was room.
  bool Write(const std::string& text) const {
    return write(child_.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
  }

  std::unique_ptr<ChildOutput> output_;
  UniqueFd child_;
};

TEST_F(ChildOutputTest, HasWhatWasWrittenAlsoAfterTheEnd) {
  EXPECT_EQ(output_->LastLines(), "");
  EXPECT_TRUE(Write("NCCL WARN one\n"));
  EXPECT_EQ(output_->LastLines(), "NCCL WARN one");
  EXPECT_TRUE(Write("NCCL WARN two\n"));
  child_.Reset();
  EXPECT_EQ(output_->LastLines(), "NCCL WARN one\nNCCL WARN two");
}

// A child may hang between the end of its output and its own.
TEST_F(ChildOutputTest, ThereIsNothingMoreToReadAfterTheEnd) {
  EXPECT_TRUE(Write("a line\n"));
  child_.Reset();
  EXPECT_TRUE(IsReadable());
  while (output_->Progress() > 0) {
  }
  EXPECT_FALSE(IsReadable());
  EXPECT_EQ(output_->LastLines(), "a line");
}

TEST_F(ChildOutputTest, OfMuchTheLastLinesAreKept) {
  for (int line = 0; line < 10'000; ++line) {
    ASSERT_TRUE(Write(absl::StrCat("line ", line, "\n")));
    output_->Progress();
  }
  const std::string lines = output_->LastLines();
  EXPECT_LT(lines.size(), ChildOutput::kKeptBytesMax);
  EXPECT_THAT(lines, AllOf(StartsWith("line 9"), EndsWith("line 9999")));
}

TEST_F(ChildOutputTest, AChildThatIsNotReadDoesNotWait) {
  int lines = 0;
  while (lines < 1'000'000 && Write("a line that is written to a pipe\n")) ++lines;
  EXPECT_LT(lines, 1'000'000);
}

}  // namespace
}  // namespace crossmesh
