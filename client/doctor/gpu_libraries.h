// The libraries that the processes of GPUs load, as this host has them.

#pragma once

#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// The version of NCCL, "2.30.7". NotFound: there is no such library, or it does not tell. `library`
// is a file, or a name that the system's loader looks for. NCCL stays loaded.
absl::StatusOr<std::string> FindNccl(const std::string& library);

// Whether NCCL M2N is there, which needs NCCL and tells no version. NotFound as FindNccl.
absl::Status FindM2n(const std::string& library);

}  // namespace crossmesh
