// What the doctor says of GPUs.

#include "client/doctor/host_checks.h"
#include "common/host_devices/testing/host_of_files.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kNvml[] = CROSSMESH_STANDIN_FOLDER "/libnvidia-ml.so.1";

class GpuChecksTest : public testing::Test {
 protected:
  // What the stand-in for NVML knows, as its own words are.
  static void Manage(const std::string& gpus) {
    setenv("CROSSMESH_STANDIN_NVML", gpus.c_str(), 1);  // NOLINT(concurrency-mt-unsafe)
  }
  HostCheck Check(const std::string& nvml) {
    const std::vector<HostCheck> checks =
        CheckHost({.root = host_.root(), .nvml = nvml, .programs = "", .listen = ""});
    return *std::ranges::find(checks, "GPUs", &HostCheck::name);
  }
  HostCheck CheckManaged() { return Check(kNvml); }

  HostOfFiles host_;
};

TEST_F(GpuChecksTest, GpusAreNamed) {
  EXPECT_EQ(Check("").found, "none");
  host_.AddGpu("pci0000:00", "0000:01:00.0", "L40S");
  EXPECT_EQ(Check("").state, HostCheck::State::kNote);
  EXPECT_THAT(Check("").advice, HasSubstr("no NIC"));
  host_.AddEthernet("eth0", "pci0000:00", "0000:02:00.0", 0);
  EXPECT_EQ(Check("").state, HostCheck::State::kGood);
  EXPECT_THAT(Check("").found, HasSubstr("NVIDIA L40S GPU-00000100.0 by eth0, links 26"));
}

TEST_F(GpuChecksTest, LinksThatAreDownAndMigAreAdvisedOn) {
  host_.AddGpu("pci0000:00", "0000:01:00.0", "H100 80GB HBM3");
  host_.AddGpu("pci0000:00", "0000:02:00.0", "H100 80GB HBM3");
  host_.AddEthernet("eth0", "pci0000:00", "0000:03:00.0", 0);
  Manage("GPU-00000100.0 85520809984 18 1 0;GPU-00000200.0 85520809984 9 0 1;");
  const HostCheck check = CheckManaged();
  EXPECT_EQ(check.state, HostCheck::State::kNote);
  EXPECT_THAT(check.found, HasSubstr("85.5 GB, 18 NVLinks up, persistence mode on, MIG off; "));
  EXPECT_THAT(check.found, HasSubstr("9 NVLinks up, persistence mode off, MIG on"));
  EXPECT_EQ(check.advice,
            "GPU-00000200.0: 9 of 18 NVLinks are up (nvidia-smi nvlink --status); "
            "GPU-00000200.0: MIG is on; a worker takes one of its instances, by --gpu "
            "DEVICE=MIG-...");
}

TEST_F(GpuChecksTest, WhatGpusDoNotHaveIsNotSaid) {
  host_.AddGpu("pci0000:00", "0000:01:00.0", "H100 80GB HBM3");
  host_.AddEthernet("eth0", "pci0000:00", "0000:03:00.0", 0);
  Manage("GPU-00000100.0 85520809984 0 - -;");
  EXPECT_THAT(CheckManaged().found, Not(HasSubstr("persistence")));
}

TEST_F(GpuChecksTest, WhatNvmlDoesNotKnowIsNoProblem) {
  host_.AddGpu("pci0000:00", "0000:01:00.0", "H100 80GB HBM3");
  host_.AddEthernet("eth0", "pci0000:00", "0000:03:00.0", 0);
  Manage("GPU-other 1 1 1 1;");
  EXPECT_EQ(CheckManaged().state, HostCheck::State::kGood);
}

}  // namespace
}  // namespace crossmesh
