// NVML over GPUs that the environment names, in its own words: CROSSMESH_STANDIN_NVML has for each
// "UUID MEMORY_BYTES LINKS_UP PERSISTENCE MIG", the last two 0, 1, or - for "not supported", with a
// semicolon after each. As in NVML every call fails before nvmlInit_v2, and after the last
// nvmlShutdown.

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include <absl/strings/numbers.h>
#include <absl/strings/str_split.h>

// NOLINTBEGIN: the library's names and types
struct nvmlMemory_st {
  unsigned long long total, free, used;
};

struct nvmlDevice_st {
  std::string uuid;
  unsigned long long memory_bytes = 0;
  unsigned links_up = 0;
  int persistence = -1;  // -1: not supported
  int mig = -1;
};
// NOLINTEND

namespace {

using Device = nvmlDevice_st;

constexpr int kSuccess = 0, kUninitialized = 1, kInvalidArgument = 2, kNotSupported = 3,
              kNotFound = 6, kUnknown = 999;

// NOLINTNEXTLINE: the library's state, as NVML has one
std::unique_ptr<std::vector<Device>> devices;

int SettingOf(const std::string& text) { return text == "-" ? -1 : text == "1" ? 1 : 0; }

bool Read(const std::string& text) {
  for (const std::string& line :
       std::vector<std::string>(absl::StrSplit(text, ';', absl::SkipWhitespace()))) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    Device device;
    if (words.size() != 5 || !absl::SimpleAtoi(words[1], &device.memory_bytes) ||
        !absl::SimpleAtoi(words[2], &device.links_up)) {
      return false;
    }
    device.uuid = words[0];
    device.persistence = SettingOf(words[3]);
    device.mig = SettingOf(words[4]);
    devices->push_back(device);
  }
  return true;
}

int Tell(int setting, unsigned* value) {
  if (devices == nullptr) return kUninitialized;
  if (setting < 0) return kNotSupported;
  *value = static_cast<unsigned>(setting);
  return kSuccess;
}

}  // namespace

extern "C" {

int nvmlInit_v2() {
  const char* const text = std::getenv("CROSSMESH_STANDIN_NVML");
  devices = std::make_unique<std::vector<Device>>();
  if (text != nullptr && Read(text)) return kSuccess;
  devices = nullptr;
  return kUnknown;
}

int nvmlShutdown() {
  if (devices == nullptr) return kUninitialized;
  devices = nullptr;
  return kSuccess;
}

int nvmlDeviceGetHandleByUUID(const char* uuid, Device** device) {
  if (devices == nullptr) return kUninitialized;
  for (Device& known : *devices) {
    if (known.uuid != uuid) continue;
    *device = &known;
    return kSuccess;
  }
  return kNotFound;
}

int nvmlDeviceGetMemoryInfo(Device* device, nvmlMemory_st* memory) {
  if (devices == nullptr) return kUninitialized;
  *memory = {device->memory_bytes, device->memory_bytes, 0};
  return kSuccess;
}

int nvmlDeviceGetPersistenceMode(Device* device, unsigned* mode) {
  return Tell(device->persistence, mode);
}

int nvmlDeviceGetMigMode(Device* device, unsigned* current, unsigned* pending) {
  *pending = 0;
  return Tell(device->mig, current);
}

// GPUs without NVLink have no link to ask of.
int nvmlDeviceGetNvLinkState(Device* device, unsigned link, unsigned* is_active) {
  if (devices == nullptr) return kUninitialized;
  if (device->links_up == 0) return kNotSupported;
  if (link >= 18) return kInvalidArgument;
  *is_active = link < device->links_up ? 1 : 0;
  return kSuccess;
}

}  // extern "C"
