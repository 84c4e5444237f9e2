#include "controller/communicators/compare_preflights.h"

#include "common/testing/status_matchers.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kNeeded = 1 << 20;

// Three ranks that fit together.
std::vector<PreflightReport> Reports() {
  std::vector<PreflightReport> reports;
  for (const std::string gpu : {"GPU-a", "GPU-b", "GPU-c"}) {
    reports.push_back({.rank = {gpu, 1},
                       .nccl_version = 23007,
                       .nccl_library = "NCCL 2.30.7, /lib",
                       .driver_version = 13000,
                       .environment = {{"NCCL_CUMEM_ENABLE", "1"}},
                       .free_bytes = kNeeded});
  }
  return reports;
}

TEST(ComparePreflightsTest, RanksThatFitTogetherAreTaken) {
  EXPECT_OK(ComparePreflights(Reports(), kNeeded));
}

TEST(ComparePreflightsTest, AnotherVersionIsToldOfBoth) {
  std::vector<PreflightReport> reports = Reports();
  reports[2].nccl_version = 22907;
  reports[2].nccl_library = "NCCL 2.29.7, /old";
  EXPECT_THAT(ComparePreflights(reports, kNeeded),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("NCCL version differs"),
                             HasSubstr("rank GPU-a#1 has 23007 (NCCL 2.30.7, /lib)"),
                             HasSubstr("rank GPU-c#1 has 22907 (NCCL 2.29.7, /old)"))));
}

TEST(ComparePreflightsTest, AVariableThatDiffersIsToldOfBoth) {
  std::vector<PreflightReport> reports = Reports();
  reports[1].environment["NCCL_CUMEM_ENABLE"] = "0";
  EXPECT_THAT(ComparePreflights(reports, kNeeded),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "NCCL_CUMEM_ENABLE differs: rank GPU-a#1 has '1', rank GPU-b#1 has '0'"));
}

TEST(ComparePreflightsTest, AVariableThatOneLacksDiffers) {
  std::vector<PreflightReport> reports = Reports();
  reports[0].environment["NCCL_P2P_DISABLE"] = "1";
  EXPECT_THAT(ComparePreflights(reports, kNeeded),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "NCCL_P2P_DISABLE differs: rank GPU-a#1 has '1', rank GPU-b#1 has unset"));
}

TEST(ComparePreflightsTest, WhatIsOfAHostMayDiffer) {
  std::vector<PreflightReport> reports = Reports();
  reports[1].environment["NCCL_SOCKET_IFNAME"] = "eth7";
  reports[1].environment["CUDA_VISIBLE_DEVICES"] = "3";
  reports[1].driver_version = 13010;
  EXPECT_OK(ComparePreflights(reports, kNeeded));
}

TEST(ComparePreflightsTest, TwoRanksOnOneGpuAreRefused) {
  std::vector<PreflightReport> reports = Reports();
  reports[2].rank = {"GPU-b", 9};
  EXPECT_THAT(ComparePreflights(reports, kNeeded),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("duplicate GPU"), HasSubstr("ranks GPU-b#1 and GPU-b#9"))));
}

TEST(ComparePreflightsTest, TwoRanksOnOneGpuAreTakenWhereNcclIsToldSo) {
  std::vector<PreflightReport> reports = Reports();
  reports[2].rank = {"GPU-b", 9};
  for (PreflightReport& report : reports) {
    report.environment["NCCL_MULTI_RANK_GPU_ENABLE"] = "1";
  }
  EXPECT_OK(ComparePreflights(reports, kNeeded));
}

TEST(ComparePreflightsTest, TooLittleMemoryIsToldOfItsRank) {
  std::vector<PreflightReport> reports = Reports();
  reports[2].free_bytes = kNeeded - 1;
  EXPECT_THAT(ComparePreflights(reports, kNeeded),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "too little memory: a communicator takes about 1048576 bytes, rank GPU-c#1 "
                       "has 1048575"));
}

}  // namespace
}  // namespace crossmesh
