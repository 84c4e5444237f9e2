#include "client/cli/testing/program_run.h"

#include "common/base/unique_fd.h"

#include <array>

#include <absl/time/time.h>
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

namespace crossmesh {
namespace {

TEST(ProgramRun, HasWhatWasPrintedAndTheExitStatus) {
  const ProgramResult result = RunShell("echo out; echo error >&2; exit 7");
  EXPECT_EQ(result.out, "out\n");
  EXPECT_EQ(result.error, "error\n");
  EXPECT_EQ(result.exit_status, 7);
}

TEST(ProgramRun, WaitsForWhatThePrintingIsLeftTo) {
  EXPECT_EQ(RunShell("(sleep 0.1; echo late) & echo early").out, "early\nlate\n");
}

TEST(ProgramRun, AProgramThatDoesNotEndFailsTheTestByItsName) {
  EXPECT_NONFATAL_FAILURE(EXPECT_EQ(RunShell("sleep 601", absl::Milliseconds(50)).exit_status, -1),
                          "killed, since it had not ended after 50ms: sleep 601");
}

TEST(ProgramRun, AndByWhatItPrintedSoFar) {
  EXPECT_NONFATAL_FAILURE(RunShell("echo so far; echo trouble >&2; sleep 602", absl::Seconds(3)),
                          "so far: so far\n\nand to standard error: trouble");
}

TEST(ProgramRun, AndWhenItPrintsNothingMoreButRunsOn) {
  EXPECT_NONFATAL_FAILURE(RunShell("exec >/dev/null; sleep 603", absl::Milliseconds(50)),
                          "sleep 603");
}

TEST(ProgramRun, WhatItStartedEndsWithIt) {
  std::array<int, 2> ends = {};
  ASSERT_EQ(pipe(ends.data()), 0);  // which programs inherit
  const UniqueFd reader(ends[0]);
  UniqueFd writer(ends[1]);
  EXPECT_NONFATAL_FAILURE(RunShell("sleep 604 & sleep 605", absl::Milliseconds(50)), "sleep 604");
  writer.Reset();
  pollfd closed = {.fd = reader.get(), .events = POLLIN};
  EXPECT_EQ(poll(&closed, 1, 30'000), 1) << "expected the end of all that had the pipe";
}

}  // namespace
}  // namespace crossmesh
