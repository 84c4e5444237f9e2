// On a machine with few GPUs tests may give one to several ranks. Each has a share of it then,
// which is named "GPU-4bd8...:0", and counts as a GPU wherever GPUs are told apart: by owners,
// operations and communicators. What loads the driver knows whole GPUs only.

#pragma once

#include <string>

#include <absl/strings/string_view.h>

namespace crossmesh {

// Whether `gpu` names a share.
bool IsGpuShare(absl::string_view gpu);

// Of a GPU or of the one that it names a share of: "GPU-4bd8..." for both.
std::string UuidOf(absl::string_view gpu);

}  // namespace crossmesh
