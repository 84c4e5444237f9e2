// What the driver's management library (NVML) says of GPUs, beside what the system's files do.

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {

inline constexpr char kNvmlLibrary[] = "libnvidia-ml.so.1";

// A GPU, as far as the library knows.
struct NvmlGpu {
  int64_t memory_bytes = 0;         // 0: not known
  int nvlinks = 0;                  // that are up
  std::optional<bool> persistence;  // nothing: it has no such mode, as for MIG
  std::optional<bool> mig;

  friend bool operator==(const NvmlGpu&, const NvmlGpu&) = default;
};

// Of each of these UUIDs; nothing for one that the library does not know. NotFound: there is no
// such library, or it lacks what is called; Unavailable: it does not start. `library` is a file, or
// a name that the system's loader looks for.
absl::StatusOr<std::vector<std::optional<NvmlGpu>>> ReadNvml(const std::string& library,
                                                             std::span<const std::string> uuids);

}  // namespace crossmesh
