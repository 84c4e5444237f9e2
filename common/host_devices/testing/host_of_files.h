#pragma once

#include "common/testing/temporary_folder.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_replace.h>

namespace crossmesh {

// The GPUs and NICs of a host, made of the files that ReadSystemDevices reads.
class HostOfFiles {
 public:
  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = std::filesystem::path(folder_.path()) / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << "\n";
  }
  void Link(const std::string& path, const std::string& to) {
    const std::filesystem::path link = std::filesystem::path(folder_.path()) / path;
    std::filesystem::create_directories(link.parent_path());
    std::filesystem::create_directory_symlink(std::filesystem::path(folder_.path()) / to, link);
  }

  // Returns where the device is in /sys.
  std::string AddPciDevice(const std::string& bridges, const std::string& address, int node) {
    const std::string path = absl::StrCat("sys/devices/", bridges, "/", address);
    Write(path + "/numa_node", absl::StrCat(node));
    Link("sys/bus/pci/devices/" + address, path);
    return path;
  }
  // Its UUID is made of the address: "GPU-00000100.0" is at 0000:01:00.0.
  void AddGpu(const std::string& bridges, const std::string& address, const std::string& model,
              int node = 0) {
    const std::string path = AddPciDevice(bridges, address, node);
    Write(path + "/vendor", "0x10de");
    Write(path + "/class", "0x030200");
    Write(path + "/max_link_speed", "16.0 GT/s PCIe");
    Write(path + "/max_link_width", "16");
    Write("proc/driver/nvidia/gpus/" + address + "/information",
          absl::StrCat("Model: \t\t NVIDIA ", model, "\nIRQ:   \t\t 42\nGPU UUID: \t GPU-",
                       absl::StrReplaceAll(address, {{":", ""}})));
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

  // As ReadSystemDevices takes it.
  std::string root() const { return absl::StrCat(folder_.path(), "/"); }

 private:
  TemporaryFolder folder_;
};

}  // namespace crossmesh
