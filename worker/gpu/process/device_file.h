// The files of the kernel module by which a GPU is used, /dev/nvidiaN.
//
// The kernel module frees all memory of a GPU, exported memory too, when the last process that has
// this file open closes it, unless something keeps the GPU's state: nvidia-persistenced does by
// having the file open itself (nv_stop_device, called by nv_close_device, of NVIDIA's open
// modules).

#pragma once

#include "common/base/unique_fd.h"

#include <string>

#include <absl/status/statusor.h>

namespace crossmesh {

// Opens that of the GPU at a PCI address, "0000:4b:00.0"; never waits for the GPU. `root` is where
// /proc and /dev are. Errors of the system, with the path; NotFound where the kernel module shows
// no such GPU, as in some containers.
absl::StatusOr<UniqueFd> OpenDeviceFile(const std::string& root, const std::string& pci_address);

}  // namespace crossmesh
