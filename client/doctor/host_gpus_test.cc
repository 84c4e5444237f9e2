#include "client/doctor/host_gpus.h"

#include "client/doctor/host_checks.h"
#include "common/mesh/gpu_host.h"
#include "common/mesh/topology.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_folder.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using testing::HasSubstr;
using testing::Not;
namespace fs = std::filesystem;

constexpr char kNvml[] = CROSSMESH_STANDIN_FOLDER "/libnvidia-ml.so.1";

// A host made of files.
class HostGpusTest : public testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text) {
    const fs::path file = fs::path(folder_.path()) / path;
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text << "\n";
  }
  void Link(const std::string& path, const std::string& to) {
    const fs::path link = fs::path(folder_.path()) / path;
    fs::create_directories(link.parent_path());
    fs::create_directory_symlink(fs::path(folder_.path()) / to, link);
  }

  // Returns where the device is in /sys.
  std::string AddPciDevice(const std::string& bridges, const std::string& address, int node) {
    const std::string path = absl::StrCat("sys/devices/", bridges, "/", address);
    Write(path + "/numa_node", absl::StrCat(node));
    Link("sys/bus/pci/devices/" + address, path);
    return path;
  }
  void AddGpu(const std::string& bridges, const std::string& address, const std::string& model,
              int node = 0) {
    const std::string path = AddPciDevice(bridges, address, node);
    Write(path + "/vendor", "0x10de");
    Write(path + "/class", "0x030200");
    Write(path + "/max_link_speed", "16.0 GT/s PCIe");
    Write(path + "/max_link_width", "16");
    Write(
        "proc/driver/nvidia/gpus/" + address + "/information",
        absl::StrCat("Model: \t\t NVIDIA ", model, "\nIRQ:   \t\t 42\nGPU UUID: \t GPU-", address));
  }
  void AddInfiniband(const std::string& bridges, const std::string& address, int number) {
    const std::string path = AddPciDevice(bridges, address, 0);
    const std::string device = absl::StrCat("sys/class/infiniband/mlx5_", number);
    Write(device + "/ports/1/state", "4: ACTIVE");
    Write(device + "/ports/1/rate", "400 Gb/sec (4X NDR)");
    Link(device + "/device", path);
    const std::string interface = absl::StrCat("ib", number);
    Write(path + "/net/" + interface + "/x", "");
    Write("sys/class/net/" + interface + "/operstate", "up");
    Link("sys/class/net/" + interface + "/device", path);
  }
  void AddEthernet(const std::string& name, const std::string& bridges, const std::string& address,
                   int node) {
    const std::string path = AddPciDevice(bridges, address, node);
    Write("sys/class/net/" + name + "/operstate", "up");
    Write("sys/class/net/" + name + "/speed", "200000");
    Link("sys/class/net/" + name + "/device", path);
  }

  absl::StatusOr<Host> Describe() {
    return DescribeHost(ReadSystemDevices(absl::StrCat(folder_.path(), "/")), "node-a");
  }
  // What the stand-in for NVML knows, as its own words are.
  static void Manage(const std::string& gpus) {
    setenv("CROSSMESH_STANDIN_NVML", gpus.c_str(), 1);  // NOLINT(concurrency-mt-unsafe)
  }
  absl::StatusOr<Host> DescribeManaged() {
    return DescribeHost(ReadSystemDevices(absl::StrCat(folder_.path(), "/"), kNvml), "node-a");
  }
  HostCheck CheckManaged() {
    const std::vector<HostCheck> checks =
        CheckHost({.root = absl::StrCat(folder_.path(), "/"), .nvml = kNvml});
    return *std::ranges::find(checks, "GPUs", &HostCheck::name);
  }

  TemporaryFolder folder_;
};

// As a DGX has them: a switch for each GPU and its NIC, two of them below a root.
TEST_F(HostGpusTest, EightH100sHaveTheNicsOfTheirSwitches) {
  for (int i = 0; i < 8; ++i) {
    const std::string bridges = absl::StrFormat("pci0000:%02x/0000:%02x:01.0/0000:%02x:00.0",
                                                16 * (i / 2), 16 * (i / 2), 16 * i + 1);
    AddGpu(bridges, absl::StrFormat("0000:%02x:00.0", 16 * i + 2), "H100 80GB HBM3");
    // NICs have other numbers than the GPUs beside them.
    AddInfiniband(bridges, absl::StrFormat("0000:%02x:00.0", 16 * i + 3), 7 - i);
  }
  AddEthernet("eno1", "pci0000:ff/0000:ff:01.0", "0000:ff:02.0", 0);
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

TEST_F(HostGpusTest, OnAPcieHostTheNodeDecidesAndGpusShareNics) {
  for (int i = 0; i < 4; ++i) {
    AddGpu(absl::StrFormat("pci0000:%d0/0000:%d0:01.0", i, i), absl::StrFormat("0000:%d1:00.0", i),
           "L40S", i / 2);
  }
  AddEthernet("eth0", "pci0000:50/0000:50:01.0", "0000:51:00.0", 1);
  AddEthernet("eth1", "pci0000:60/0000:60:01.0", "0000:61:00.0", 0);
  ASSERT_OK_AND_ASSIGN(const Host host, Describe());
  ASSERT_EQ(host.gpus.size(), 4u);
  EXPECT_EQ(host.gpus[1], (HostGpu{1, "eth1", 26'000'000'000, 26'000'000'000, 345'600'000'000}));
  EXPECT_EQ(host.gpus[2].nic, "eth0");
  EXPECT_EQ(host.nics[0], (Nic{"eth0", 25'000'000'000, 25'000'000'000}));
}

TEST_F(HostGpusTest, OfNicsThatAreAsNearEachGpuHasItsOwn) {
  for (int i = 0; i < 2; ++i) {
    AddGpu("pci0000:00/0000:00:01.0", absl::StrFormat("0000:0%d:00.0", 1 + i), "L40S");
    AddEthernet(absl::StrCat("eth", i), "pci0000:00/0000:00:01.0",
                absl::StrFormat("0000:0%d:00.0", 5 + i), 0);
  }
  ASSERT_OK_AND_ASSIGN(const Host host, Describe());
  EXPECT_NE(host.gpus[0].nic, host.gpus[1].nic);
}

TEST_F(HostGpusTest, TheDoctorNamesThem) {
  const auto check = [&] {
    const std::vector<HostCheck> checks =
        CheckHost({.root = absl::StrCat(folder_.path(), "/"), .programs = "", .listen = ""});
    return *std::ranges::find(checks, "GPUs", &HostCheck::name);
  };
  EXPECT_EQ(check().found, "none");
  AddGpu("pci0000:00", "0000:01:00.0", "L40S");
  EXPECT_EQ(check().state, HostCheck::State::kNote);
  EXPECT_THAT(check().advice, HasSubstr("no NIC"));
  AddEthernet("eth0", "pci0000:00", "0000:02:00.0", 0);
  EXPECT_EQ(check().state, HostCheck::State::kGood);
  EXPECT_THAT(check().found, HasSubstr("NVIDIA L40S GPU-0000:01:00.0 by eth0, links 26"));
}

TEST_F(HostGpusTest, LinksAreThoseThatAreUp) {
  AddGpu("pci0000:00", "0000:01:00.0", "H100 80GB HBM3");
  AddGpu("pci0000:00", "0000:02:00.0", "H100 80GB HBM3");
  AddEthernet("eth0", "pci0000:00", "0000:03:00.0", 0);
  Manage("GPU-0000:01:00.0 85520809984 18 1 0;GPU-0000:02:00.0 85520809984 9 0 1;");
  ASSERT_OK_AND_ASSIGN(const Host host, DescribeManaged());
  EXPECT_EQ(host.gpus[0].link_out_bytes_per_second, 450'000'000'000);
  EXPECT_EQ(host.gpus[1].link_in_bytes_per_second, 225'000'000'000);
  const HostCheck check = CheckManaged();
  EXPECT_EQ(check.state, HostCheck::State::kNote);
  EXPECT_THAT(check.found, HasSubstr("85.5 GB, 18 NVLinks up, persistence mode on, MIG off; "));
  EXPECT_THAT(check.found, HasSubstr("9 NVLinks up, persistence mode off, MIG on"));
  EXPECT_EQ(check.advice,
            "GPU-0000:02:00.0: 9 of 18 NVLinks are up (nvidia-smi nvlink --status); "
            "GPU-0000:02:00.0: MIG is on; a worker takes one of its instances, by --gpu "
            "DEVICE=MIG-...");
}

TEST_F(HostGpusTest, WithoutLinksThatAreUpItIsTheSlot) {
  AddGpu("pci0000:00", "0000:01:00.0", "H100 80GB HBM3");
  AddEthernet("eth0", "pci0000:00", "0000:03:00.0", 0);
  Manage("GPU-0000:01:00.0 85520809984 0 - -;");
  EXPECT_EQ(DescribeManaged()->gpus[0].link_out_bytes_per_second, 26'000'000'000);
  EXPECT_THAT(CheckManaged().found, Not(HasSubstr("persistence")));
}

TEST_F(HostGpusTest, WhatNvmlDoesNotKnowIsAsItsModelIs) {
  AddGpu("pci0000:00", "0000:01:00.0", "H100 80GB HBM3");
  AddEthernet("eth0", "pci0000:00", "0000:03:00.0", 0);
  Manage("GPU-other 1 1 1 1;");
  EXPECT_EQ(DescribeManaged()->gpus[0].link_out_bytes_per_second, 450'000'000'000);
  EXPECT_EQ(CheckManaged().state, HostCheck::State::kGood);
}

TEST_F(HostGpusTest, WhatIsNotKnownIsNamed) {
  EXPECT_THAT(Describe(), StatusIs(absl::StatusCode::kNotFound, HasSubstr("no GPU")));
  AddGpu("pci0000:00", "0000:01:00.0", "Quadro K600");
  EXPECT_THAT(Describe(), StatusIs(absl::StatusCode::kNotFound, HasSubstr("no NIC")));
  AddEthernet("eth0", "pci0000:00", "0000:02:00.0", 0);
  EXPECT_THAT(Describe(),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("GPU 0000:01:00.0: its rates are not known; model \"NVIDIA "
                                 "Quadro K600\"")));
}

}  // namespace
}  // namespace crossmesh
