// The GPUs and NICs of this host, as the system's files show them, and their part of a network's
// description.

#pragma once

#include "common/host_devices/nvml.h"
#include "common/mesh/topology.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {

struct PciPlace {
  std::string path;    // in /sys/devices: bridges, and the device itself
  int numa_node = -1;  // -1: not known
};

struct SystemGpu {
  std::string address;  // on PCI
  PciPlace place;
  int64_t slot_bytes_per_second = 0;  // of its PCIe slot, per direction; 0: not known
  std::string model, uuid;            // as the driver names it; empty: no driver, or unknown to it
  std::optional<NvmlGpu> managed;     // nothing: NVML was not asked, or does not know it
};

struct SystemNic {
  std::string name;  // of its interface, or of its RDMA device where it has none
  PciPlace place;
  int64_t bytes_per_second = 0;
};

struct SystemDevices {
  std::vector<SystemGpu> gpus;  // by address, as nvidia-smi lists them
  std::vector<SystemNic> nics;  // by name; those whose link is up
};

// Reads /sys and /proc below this folder, which ends in '/'. What cannot be read is not there.
SystemDevices ReadSystemDevices(const std::string& root);

// The same of this host, with what NVML says of its GPUs, if it is there.
SystemDevices ReadSystemDevices(const std::string& root, const std::string& nvml_library);

// Each GPU has the NIC with which it has most bridges in common, or else a NUMA node; of several
// that are as near, one that fewest others have. Its links are NVLink where its model has that, as
// many as NVML says are up, and its slot where none is. NotFound: no GPU, no NIC, or a GPU of which
// a rate is not known.
absl::StatusOr<Host> DescribeHost(const SystemDevices& devices, std::string name);

}  // namespace crossmesh
