#include "common/host_devices/host_devices.h"

#include "common/host_devices/testing/host_of_files.h"
#include "common/mesh/gpu_host.h"
#include "common/mesh/topology.h"
#include "common/testing/status_matchers.h"

#include <cstdlib>
#include <string>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;

constexpr char kNvml[] = CROSSMESH_STANDIN_FOLDER "/libnvidia-ml.so.1";

class HostDevicesTest : public testing::Test {
 protected:
  absl::StatusOr<Host> Describe() {
    return DescribeHost(ReadSystemDevices(host_.root()), "node-a");
  }
  // What the stand-in for NVML knows, as its own words are.
  static void Manage(const std::string& gpus) {
    setenv("CROSSMESH_STANDIN_NVML", gpus.c_str(), 1);  // NOLINT(concurrency-mt-unsafe)
  }
  absl::StatusOr<Host> DescribeManaged() {
    return DescribeHost(ReadSystemDevices(host_.root(), kNvml), "node-a");
  }

  HostOfFiles host_;
};

// As a DGX has them: a switch for each GPU and its NIC, two of them below a root.
TEST_F(HostDevicesTest, EightH100sHaveTheNicsOfTheirSwitches) {
  for (int i = 0; i < 8; ++i) {
    const std::string bridges = absl::StrFormat("pci0000:%02x/0000:%02x:01.0/0000:%02x:00.0",
                                                16 * (i / 2), 16 * (i / 2), 16 * i + 1);
    host_.AddGpu(bridges, absl::StrFormat("0000:%02x:00.0", 16 * i + 2), "H100 80GB HBM3");
    // NICs have other numbers than the GPUs beside them.
    host_.AddInfiniband(bridges, absl::StrFormat("0000:%02x:00.0", 16 * i + 3), 7 - i);
  }
  host_.AddEthernet("eno1", "pci0000:ff/0000:ff:01.0", "0000:ff:02.0", 0);
  ASSERT_OK_AND_ASSIGN(const Host host, Describe());
  EXPECT_OK(Topology::Create({host}, {}));
  ASSERT_EQ(host.gpus.size(), 8u);
  ASSERT_EQ(host.nics.size(), 9u);
  for (int i = 0; i < 8; ++i) {
    HostGpu expected = GpuHost("h100x8", "node-a")->gpus[i];
    expected.nic = absl::StrCat("ib", 7 - i);
    EXPECT_EQ(host.gpus[i], expected);
  }
  EXPECT_EQ(host.nics[1], (Nic{"ib0", 50'000'000'000, 50'000'000'000}));
}

TEST_F(HostDevicesTest, OnAPcieHostTheNodeDecidesAndGpusShareNics) {
  for (int i = 0; i < 4; ++i) {
    host_.AddGpu(absl::StrFormat("pci0000:%d0/0000:%d0:01.0", i, i),
                 absl::StrFormat("0000:%d1:00.0", i), "L40S", i / 2);
  }
  host_.AddEthernet("eth0", "pci0000:50/0000:50:01.0", "0000:51:00.0", 1);
  host_.AddEthernet("eth1", "pci0000:60/0000:60:01.0", "0000:61:00.0", 0);
  ASSERT_OK_AND_ASSIGN(const Host host, Describe());
  ASSERT_EQ(host.gpus.size(), 4u);
  EXPECT_EQ(host.gpus[1], (HostGpu{1, "eth1", 26'000'000'000, 26'000'000'000, 345'600'000'000}));
  EXPECT_EQ(host.gpus[2].nic, "eth0");
  EXPECT_EQ(host.nics[0], (Nic{"eth0", 25'000'000'000, 25'000'000'000}));
}

TEST_F(HostDevicesTest, OfNicsThatAreAsNearEachGpuHasItsOwn) {
  for (int i = 0; i < 2; ++i) {
    host_.AddGpu("pci0000:00/0000:00:01.0", absl::StrFormat("0000:0%d:00.0", 1 + i), "L40S");
    host_.AddEthernet(absl::StrCat("eth", i), "pci0000:00/0000:00:01.0",
                      absl::StrFormat("0000:0%d:00.0", 5 + i), 0);
  }
  ASSERT_OK_AND_ASSIGN(const Host host, Describe());
  EXPECT_NE(host.gpus[0].nic, host.gpus[1].nic);
}

TEST_F(HostDevicesTest, LinksAreThoseThatAreUp) {
  host_.AddGpu("pci0000:00", "0000:01:00.0", "H100 80GB HBM3");
  host_.AddGpu("pci0000:00", "0000:02:00.0", "H100 80GB HBM3");
  host_.AddEthernet("eth0", "pci0000:00", "0000:03:00.0", 0);
  Manage("GPU-00000100.0 85520809984 18 1 0;GPU-00000200.0 85520809984 9 0 1;");
  ASSERT_OK_AND_ASSIGN(const Host host, DescribeManaged());
  EXPECT_EQ(host.gpus[0].link_out_bytes_per_second, 450'000'000'000);
  EXPECT_EQ(host.gpus[1].link_in_bytes_per_second, 225'000'000'000);
}

TEST_F(HostDevicesTest, WithoutLinksThatAreUpItIsTheSlot) {
  host_.AddGpu("pci0000:00", "0000:01:00.0", "H100 80GB HBM3");
  host_.AddEthernet("eth0", "pci0000:00", "0000:03:00.0", 0);
  Manage("GPU-00000100.0 85520809984 0 - -;");
  EXPECT_EQ(DescribeManaged()->gpus[0].link_out_bytes_per_second, 26'000'000'000);
}

TEST_F(HostDevicesTest, WhatNvmlDoesNotKnowIsAsItsModelIs) {
  host_.AddGpu("pci0000:00", "0000:01:00.0", "H100 80GB HBM3");
  host_.AddEthernet("eth0", "pci0000:00", "0000:03:00.0", 0);
  Manage("GPU-other 1 1 1 1;");
  EXPECT_EQ(DescribeManaged()->gpus[0].link_out_bytes_per_second, 450'000'000'000);
}

TEST_F(HostDevicesTest, WhatIsNotKnownIsNamed) {
  EXPECT_THAT(Describe(), StatusIs(absl::StatusCode::kNotFound, HasSubstr("no GPU")));
  host_.AddGpu("pci0000:00", "0000:01:00.0", "Quadro K600");
  EXPECT_THAT(Describe(), StatusIs(absl::StatusCode::kNotFound, HasSubstr("no NIC")));
  host_.AddEthernet("eth0", "pci0000:00", "0000:02:00.0", 0);
  EXPECT_THAT(Describe(),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("GPU 0000:01:00.0: its rates are not known; model \"NVIDIA "
                                 "Quadro K600\"")));
}

}  // namespace
}  // namespace crossmesh
