#include "worker/transport/socket/process_file.h"

#include "common/testing/status_matchers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;

constexpr TransportNonce kNonce = {'n', 'o', 'n', 'c', 'e'};

ProcessFile FileOfThis(const UniqueFd& fd) {
  return {.pid = static_cast<uint32_t>(getpid()), .fd = static_cast<uint32_t>(fd.get())};
}

TEST(NonceFileTest, WhoMayOpenItReadsTheNonce) {
  ASSERT_OK_AND_ASSIGN(const UniqueFd fd, MakeNonceFile(kNonce));
  EXPECT_OK(CheckNonceFile(FileOfThis(fd), kNonce));
}

TEST(NonceFileTest, AnotherNonceIsNoProof) {
  ASSERT_OK_AND_ASSIGN(const UniqueFd fd, MakeNonceFile(kNonce));
  EXPECT_THAT(CheckNonceFile(FileOfThis(fd), {'x'}),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("found something else")));
}

TEST(NonceFileTest, AProcessOrFileThatIsNotThereIsNoProof) {
  ASSERT_OK_AND_ASSIGN(const UniqueFd fd, MakeNonceFile(kNonce));
  ProcessFile file = FileOfThis(fd);
  file.fd = 1 << 20;
  EXPECT_THAT(CheckNonceFile(file, kNonce),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("/fd/1048576")));
  file = FileOfThis(fd);
  file.pid = 1 << 30;
  EXPECT_THAT(CheckNonceFile(file, kNonce), StatusIs(absl::StatusCode::kUnavailable));
}

}  // namespace
}  // namespace crossmesh
