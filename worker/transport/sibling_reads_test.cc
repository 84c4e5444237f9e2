#include "worker/transport/sibling_reads.h"

#include "common/base/thread.h"
#include "common/testing/status_matchers.h"
#include "worker/transport/testing/system_filter.h"

#include <cerrno>
#include <cstdint>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/seccomp.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

SiblingReads ProbeUnderFilter(uint32_t action) {
  SiblingReads reads;
  Thread("filtered", [&] {
    FilterSiblingReads(action);
    reads = ProbeSiblingReads();
  }).Join();
  return reads;
}

TEST(SiblingReadsTest, TheProbeEndsWithAnAnswer) {
  const SiblingReads reads = ProbeSiblingReads();
  EXPECT_TRUE(reads.error == 0 || reads.error == EPERM || reads.error == ENOSYS) << reads.error;
}

TEST(SiblingReadsTest, AFilterThatRefusesIsFound) {
  const SiblingReads reads = ProbeUnderFilter(SECCOMP_RET_ERRNO | ENOSYS);
  EXPECT_EQ(reads.error, ENOSYS);
  EXPECT_THAT(CheckAllowed(reads),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("seccomp filter")));
}

TEST(SiblingReadsTest, AFilterThatKillsEndsOnlyTheChild) {
  const SiblingReads reads = ProbeUnderFilter(SECCOMP_RET_KILL_PROCESS);
  EXPECT_EQ(reads.error, EPERM);
  EXPECT_TRUE(reads.seccomp_filter);
}

TEST(SiblingReadsTest, TheReasonIsNamedWithWhatToDo) {
  EXPECT_OK(CheckAllowed({.error = 0, .ptrace_scope = 1, .seccomp_filter = true}));
  EXPECT_THAT(CheckAllowed({.error = EPERM, .ptrace_scope = 1}),
              StatusIs(absl::StatusCode::kPermissionDenied,
                       AllOf(HasSubstr("kernel.yama.ptrace_scope is 1: set it to 0"),
                             Not(HasSubstr("seccomp")))));
  EXPECT_THAT(CheckAllowed({.error = EPERM, .ptrace_scope = 0, .seccomp_filter = true}),
              StatusIs(absl::StatusCode::kPermissionDenied,
                       AllOf(HasSubstr("seccomp filter"), Not(HasSubstr("ptrace_scope")))));
}

}  // namespace
}  // namespace crossmesh
