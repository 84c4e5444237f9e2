#include "controller/communicators/compare_preflights.h"

#include "common/testing/status_matchers.h"

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

constexpr int64_t kNeeded = 1 << 20;

// Three ranks that fit together.
std::vector<PreflightReport> ThatFit() {
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
  EXPECT_OK(ComparePreflights(ThatFit(), kNeeded));
}

TEST(ComparePreflightsTest, WhatDoesNotFitIsToldWithTheRanks) {
  using Reports = std::vector<PreflightReport>;
  using Change = std::function<void(Reports&)>;
  const std::vector<std::pair<Change, std::string>> cases = {
      {[](Reports& r) {
         r[2].nccl_version = 22907;
         r[2].nccl_library = "NCCL 2.29.7, /old";
       },
       "NCCL version differs: rank GPU-a#1 has 23007 (NCCL 2.30.7, /lib), "
       "rank GPU-c#1 has 22907 (NCCL 2.29.7, /old)"},
      {[](Reports& r) { r[1].environment["NCCL_CUMEM_ENABLE"] = "0"; },
       "NCCL_CUMEM_ENABLE differs: rank GPU-a#1 has \"1\", rank GPU-b#1 has \"0\""},
      {[](Reports& r) { r[0].environment["NCCL_P2P_DISABLE"] = "1"; },
       "NCCL_P2P_DISABLE differs: rank GPU-a#1 has \"1\", rank GPU-b#1 has unset"},
      {[](Reports& r) { r[2].rank = {"GPU-b", 9}; },
       "duplicate GPU: ranks GPU-b#1 and GPU-b#9 are on GPU-b, "
       "and NCCL_MULTI_RANK_GPU_ENABLE is not 1"},
      {[](Reports& r) {
         r[1].rank = {"GPU-b:0", 1};
         r[2].rank = {"GPU-b:1", 1};
       },
       "duplicate GPU: ranks GPU-b:0#1 and GPU-b:1#1 are on GPU-b, "
       "and NCCL_MULTI_RANK_GPU_ENABLE is not 1"},
      {[](Reports& r) { r[2].free_bytes = kNeeded - 1; },
       "too little memory: a communicator takes about 1048576 bytes, rank GPU-c#1 has 1048575"},
  };
  for (const auto& [change, said] : cases) {
    Reports reports = ThatFit();
    change(reports);
    EXPECT_THAT(ComparePreflights(reports, kNeeded),
                StatusIs(absl::StatusCode::kFailedPrecondition, said));
  }
}

TEST(ComparePreflightsTest, WhatIsOfAHostMayDiffer) {
  std::vector<PreflightReport> reports = ThatFit();
  reports[1].environment["NCCL_SOCKET_IFNAME"] = "eth7";
  reports[1].environment["CUDA_VISIBLE_DEVICES"] = "3";
  reports[1].driver_version = 13010;
  EXPECT_OK(ComparePreflights(reports, kNeeded));
}

TEST(ComparePreflightsTest, TwoRanksOnOneGpuAreTakenWhereNcclIsToldSo) {
  std::vector<PreflightReport> reports = ThatFit();
  reports[2].rank = {"GPU-b", 9};
  for (PreflightReport& report : reports) {
    report.environment["NCCL_MULTI_RANK_GPU_ENABLE"] = "1";
  }
  EXPECT_OK(ComparePreflights(reports, kNeeded));
}

}  // namespace
}  // namespace crossmesh
