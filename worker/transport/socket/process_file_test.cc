#include "worker/transport/socket/process_file.h"

#include "common/testing/status_matchers.h"
#include "worker/transport/socket/testing/refused_calls.h"

#include <array>
#include <cerrno>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
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
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("/fd/1048576: No such file or directory")));
  file = FileOfThis(fd);
  file.pid = 1 << 30;
  EXPECT_THAT(CheckNonceFile(file, kNonce), StatusIs(absl::StatusCode::kUnavailable));
}

TEST(NonceFileTest, AFileThatIsShorterIsNoProof) {
  TransportNonce nonce;
  nonce.fill('n');
  ASSERT_OK_AND_ASSIGN(const UniqueFd whole, MakeNonceFile(nonce));
  for (size_t bytes = 0; bytes < nonce.size(); ++bytes) {
    const UniqueFd fd(memfd_create("shorter", MFD_CLOEXEC));
    ASSERT_EQ(write(fd.get(), nonce.data(), bytes), bytes);
    // The rest is where that of the whole file was read to before.
    ASSERT_OK(CheckNonceFile(FileOfThis(whole), nonce));
    EXPECT_THAT(CheckNonceFile(FileOfThis(fd), nonce),
                StatusIs(absl::StatusCode::kUnavailable, HasSubstr("found something else")));
  }
}

TEST(NonceFileTest, WhatCannotBeReadFromAPlaceIsNoProof) {
  std::array<int, 2> ends;
  ASSERT_EQ(pipe(ends.data()), 0);
  const UniqueFd from(ends[0]);
  const UniqueFd to(ends[1]);
  EXPECT_THAT(CheckNonceFile(FileOfThis(from), kNonce),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr(absl::StrCat("/fd/", from.get(), ": Illegal seek"))));
}

TEST(NonceFileTest, WithoutDescriptorsThereIsNone) {
  absl::Status status;
  RunRefused(SYS_memfd_create, EMFILE, [&] { status = MakeNonceFile(kNonce).status(); });
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("memfd_create")));
}

TEST(NonceFileTest, OneThatCannotBeWrittenIsNone) {
  absl::Status status;
  RunRefused(SYS_write, ENOSPC, [&] { status = MakeNonceFile(kNonce).status(); });
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("writing a nonce")));
}

TEST(NonceTest, NoTwoAreEqual) {
  ASSERT_OK_AND_ASSIGN(const TransportNonce first, MakeNonce());
  ASSERT_OK_AND_ASSIGN(const TransportNonce second, MakeNonce());
  EXPECT_NE(first, second);
}

TEST(NonceTest, ASystemWithoutRandomBytesIsNamed) {
  absl::Status status;
  RunRefused(SYS_getrandom, ENOSYS, [&] { status = MakeNonce().status(); });
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInternal, HasSubstr("no random bytes")));
}

}  // namespace
}  // namespace crossmesh
