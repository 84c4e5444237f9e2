#include "common/host_devices/interface_traffic.h"

#include "common/testing/temporary_folder.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

void WriteCounter(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path) << text << "\n";
}

TEST(InterfaceTrafficTest, AnInterfacesCountersAreBytes) {
  const TemporaryFolder folder;
  const std::string root = folder.PathOf("");
  WriteCounter(root + "sys/class/net/eth0/statistics/tx_bytes", "12345678901");
  WriteCounter(root + "sys/class/net/eth0/statistics/rx_bytes", "7");
  const auto traffic = ReadInterfaceTraffic(root, "eth0");
  ASSERT_TRUE(traffic.has_value());
  EXPECT_EQ(traffic->sent_bytes, 12'345'678'901);
  EXPECT_EQ(traffic->received_bytes, 7);
}

TEST(InterfaceTrafficTest, ThoseOfRdmaDevicesAreWords) {
  const TemporaryFolder folder;
  const std::string root = folder.PathOf("");
  WriteCounter(root + "sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_data", "10");
  WriteCounter(root + "sys/class/infiniband/mlx5_0/ports/1/counters/port_rcv_data", "3");
  const auto traffic = ReadInterfaceTraffic(root, "mlx5_0");
  ASSERT_TRUE(traffic.has_value());
  EXPECT_EQ(traffic->sent_bytes, 40);
  EXPECT_EQ(traffic->received_bytes, 12);
}

TEST(InterfaceTrafficTest, WhatHasNoCountersHasNoTraffic) {
  const TemporaryFolder folder;
  const std::string root = folder.PathOf("");
  WriteCounter(root + "sys/class/net/eth1/statistics/tx_bytes", "nonsense");
  WriteCounter(root + "sys/class/net/eth1/statistics/rx_bytes", "1");
  for (const char* name : {"eth0", "eth1", "", "..", "../net/eth1"}) {
    EXPECT_FALSE(ReadInterfaceTraffic(root, name).has_value()) << name;
  }
}

}  // namespace
}  // namespace crossmesh
