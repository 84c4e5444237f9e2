#include "worker/host_report.h"

#include "common/host_devices/testing/host_of_files.h"

#include <cstdint>
#include <string>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

// Two GPUs, each with a NIC of its own.
class HostReportTest : public testing::Test {
 protected:
  HostReportTest() {
    for (int i = 0; i < 2; ++i) {
      const std::string bridges = absl::StrCat("pci0000:0", i, "/0000:0", i, ":01.0");
      host_.AddGpu(bridges, absl::StrCat("0000:0", i, ":02.0"), "H100 80GB HBM3");
      host_.AddEthernet(absl::StrCat("eth", i), bridges, absl::StrCat("0000:0", i, ":03.0"), 0);
    }
  }
  // As device of the worker, the GPU of this number.
  v1::Gpu& Add(const std::string& device, int number) {
    v1::Gpu& gpu = *gpus_.Add();
    gpu.set_device(device);
    gpu.mutable_process()->set_gpu(absl::StrCat("GPU-00000", number, "02.0"));
    return gpu;
  }
  std::optional<v1::Host> Report() const {
    return ReportHost(ReadSystemDevices(host_.root()), gpus_);
  }

  HostOfFiles host_;
  google::protobuf::RepeatedPtrField<v1::Gpu> gpus_;
};

TEST_F(HostReportTest, GpusHaveTheDevicesOfTheirWorker) {
  Add("node-a.4", 1);
  Add("node-a.7", 0).mutable_hardware()->set_nvlinks(9);
  const std::optional<v1::Host> host = Report();
  ASSERT_TRUE(host.has_value());
  EXPECT_EQ(host->name(), "node-a");
  EXPECT_EQ(host->nics_size(), 2);
  ASSERT_EQ(host->gpus_size(), 2);
  EXPECT_EQ(host->gpus(0).device(), 4);
  EXPECT_EQ(host->gpus(0).nic(), "eth1");
  EXPECT_EQ(host->gpus(0).link_out_bytes_per_second(), 450'000'000'000);
  EXPECT_EQ(host->gpus(1).device(), 7);
  EXPECT_EQ(host->gpus(1).nic(), "eth0");
  EXPECT_EQ(host->gpus(1).link_out_bytes_per_second(), 225'000'000'000) << "half of its links";
}

TEST_F(HostReportTest, WhatIsNotKnownIsNotDescribed) {
  EXPECT_FALSE(Report().has_value()) << "no GPU";
  Add("node-a.0", 0);
  EXPECT_TRUE(Report().has_value());
  Add("node-a.1", 5);
  EXPECT_FALSE(Report().has_value()) << "a GPU that the system does not name";
  gpus_.RemoveLast();
  Add("node-a.1", 0);
  EXPECT_FALSE(Report().has_value()) << "two shares of one GPU";
  gpus_.RemoveLast();
  Add("node-b.1", 1);
  EXPECT_FALSE(Report().has_value()) << "devices of two hosts";
}

}  // namespace
}  // namespace crossmesh
