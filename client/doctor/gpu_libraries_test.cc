#include "client/doctor/gpu_libraries.h"

#include "common/testing/status_matchers.h"

#include <cstdlib>

#include <absl/status/status.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

constexpr char kNccl[] = CROSSMESH_STANDIN_FOLDER "/libnccl.so.2";
constexpr char kM2n[] = CROSSMESH_STANDIN_FOLDER "/libnccl_m2n.so.0";

TEST(GpuLibrariesTest, TellsTheVersionOfNcclAndWhetherM2nIsThere) {
  EXPECT_THAT(FindNccl(kNccl), IsOkAndHolds(MatchesRegex("2\\.[0-9]+\\.[0-9]+")));
  setenv("CROSSMESH_STANDIN_NCCL_VERSION", "2.29.7", 1);  // NOLINT(concurrency-mt-unsafe)
  EXPECT_THAT(FindNccl(kNccl), IsOkAndHolds("2.29.7"));
  unsetenv("CROSSMESH_STANDIN_NCCL_VERSION");  // NOLINT(concurrency-mt-unsafe)
  EXPECT_OK(FindM2n(kM2n));
}

TEST(GpuLibrariesTest, WhatIsMissingIsNamed) {
  EXPECT_THAT(FindNccl("/nowhere/libnccl.so.2"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/nowhere/libnccl.so.2")));
  EXPECT_THAT(FindNccl("libm.so.6"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("libm.so.6: no ncclGetVersion")));
  EXPECT_THAT(FindM2n("libm.so.6"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("libm.so.6: no ncclReshard")));
}

}  // namespace
}  // namespace crossmesh
