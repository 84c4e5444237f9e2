#include "worker/gpu/communicators/preflight.h"

#include "common/testing/status_matchers.h"
#include "worker/gpu/communicators/testing/stand_in_rank.h"

#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

TEST(PreflightTest, OnlyVariablesOfNcclAndCudaAreTold) {
  const char* const environment[] = {
      "HOME=/root", "NCCL_CUMEM_ENABLE=0", "NCCL_ALGO=a=b", "CUDA_EMPTY=", "CUDA", nullptr};
  EXPECT_THAT(GpuEnvironment(environment),
              ElementsAre(Pair("CUDA_EMPTY", ""), Pair("NCCL_ALGO", "a=b"),
                          Pair("NCCL_CUMEM_ENABLE", "0")));
}

TEST(PreflightTest, AReportHasWhatThereIs) {
  ASSERT_OK_AND_ASSIGN(const auto rank, StandInRank::Create());
  setenv("NCCL_OF_THE_TEST", "yes", 1);
  ASSERT_OK_AND_ASSIGN(const PreflightReport report,
                       TakePreflight(rank->driver(), rank->nccl(), {"GPU-a", 7}));
  unsetenv("NCCL_OF_THE_TEST");
  EXPECT_EQ(report.rank, (RankName{"GPU-a", 7}));
  EXPECT_EQ(report.nccl_version, rank->nccl().version());
  EXPECT_THAT(report.nccl_library, HasSubstr("libnccl.so.2"));
  EXPECT_EQ(report.driver_version, rank->driver().version());
  EXPECT_THAT(report.environment, Contains(Pair("NCCL_OF_THE_TEST", "yes")));
  EXPECT_THAT(rank->gpu().FreeBytes(), IsOkAndHolds(report.free_bytes));
  EXPECT_OK(rank->Close());
}

}  // namespace
}  // namespace crossmesh
