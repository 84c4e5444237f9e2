#include "common/host_devices/nvml.h"

#include "common/base/status_macros.h"
#include "common/host_devices/library_function.h"

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

// As nvml.h declares them, which no package that we build with has. Results are 0 for success.
// NOLINTBEGIN: the library's names and types
struct nvmlDevice_st;
struct nvmlMemory_st {
  unsigned long long total, free, used;
};
// NOLINTEND

namespace crossmesh {
namespace {

using Device = nvmlDevice_st*;
using Memory = nvmlMemory_st;
// NVML_NVLINK_MAX_LINKS
constexpr unsigned kLinksMax = 18;

class Nvml {
 public:
  static absl::StatusOr<Nvml> Load(const std::string& library) {
    Nvml nvml;
    absl::Status status;
    const auto resolve = [&](const char* name, auto*& function) {
      const absl::StatusOr<void*> found = FindFunction(library, name);
      status.Update(found.status());
      function =
          reinterpret_cast<std::remove_reference_t<decltype(function)>>(found.value_or(nullptr));
    };
    resolve("nvmlInit_v2", nvml.init_);
    resolve("nvmlShutdown", nvml.shutdown_);
    resolve("nvmlDeviceGetHandleByUUID", nvml.handle_by_uuid_);
    resolve("nvmlDeviceGetMemoryInfo", nvml.memory_info_);
    resolve("nvmlDeviceGetPersistenceMode", nvml.persistence_mode_);
    resolve("nvmlDeviceGetMigMode", nvml.mig_mode_);
    resolve("nvmlDeviceGetNvLinkState", nvml.link_state_);
    RETURN_IF_ERROR(status);
    return nvml;
  }

  int Init() const { return init_(); }
  void Shutdown() const { shutdown_(); }

  std::optional<NvmlGpu> Read(const std::string& uuid) const {
    Device device = nullptr;
    if (handle_by_uuid_(uuid.c_str(), &device) != 0) return std::nullopt;
    NvmlGpu gpu;
    if (Memory memory = {}; memory_info_(device, &memory) == 0) {
      gpu.memory_bytes = static_cast<int64_t>(memory.total);
    }
    unsigned mode = 0;
    if (persistence_mode_(device, &mode) == 0) gpu.persistence = mode != 0;
    unsigned pending = 0;
    if (mig_mode_(device, &mode, &pending) == 0) gpu.mig = mode != 0;
    for (unsigned link = 0; link < kLinksMax; ++link) {
      unsigned is_active = 0;
      if (link_state_(device, link, &is_active) == 0 && is_active != 0) ++gpu.nvlinks;
    }
    return gpu;
  }

 private:
  int (*init_)() = nullptr;
  int (*shutdown_)() = nullptr;
  int (*handle_by_uuid_)(const char*, Device*) = nullptr;
  int (*memory_info_)(Device, Memory*) = nullptr;
  int (*persistence_mode_)(Device, unsigned*) = nullptr;
  int (*mig_mode_)(Device, unsigned*, unsigned*) = nullptr;
  int (*link_state_)(Device, unsigned, unsigned*) = nullptr;
};

}  // namespace

absl::StatusOr<std::vector<std::optional<NvmlGpu>>> ReadNvml(const std::string& library,
                                                             std::span<const std::string> uuids) {
  ASSIGN_OR_RETURN(const Nvml nvml, Nvml::Load(library));
  if (const int result = nvml.Init(); result != 0) {
    return absl::UnavailableError(absl::StrCat("library ", library, ": nvmlInit_v2 said ", result));
  }
  std::vector<std::optional<NvmlGpu>> gpus;
  for (const std::string& uuid : uuids) gpus.push_back(nvml.Read(uuid));
  nvml.Shutdown();
  return gpus;
}

}  // namespace crossmesh
