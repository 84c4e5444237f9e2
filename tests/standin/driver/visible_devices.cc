#include "tests/standin/driver/visible_devices.h"

#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>

#include <absl/strings/escaping.h>
#include <absl/strings/match.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <absl/strings/string_view.h>

namespace crossmesh {
namespace {

bool AreInstances() { return std::getenv("CROSSMESH_STANDIN_MIG") != nullptr; }

// As nvidia-smi prints it.
std::string UuidText(int number) {
  const CUuuid uuid = UuidOfNumber(number);
  std::string text = AreInstances() ? "MIG" : "GPU";
  for (const absl::string_view bytes :
       {absl::string_view(uuid.bytes, 4), absl::string_view(uuid.bytes + 4, 2),
        absl::string_view(uuid.bytes + 6, 2), absl::string_view(uuid.bytes + 8, 2),
        absl::string_view(uuid.bytes + 10, 6)}) {
    absl::StrAppend(&text, "-", absl::BytesToHexString(bytes));
  }
  return text;
}

std::optional<int> FindDevice(absl::string_view name, const std::vector<int>& numbers) {
  size_t index = 0;
  if (!AreInstances() && absl::SimpleAtoi(name, &index)) {
    return index < numbers.size() ? std::optional(numbers[index]) : std::nullopt;
  }
  for (const int number : numbers) {
    // "GPU-" alone begins every UUID, and names none.
    if (name.size() > 4 && absl::StartsWith(UuidText(number), name)) return number;
  }
  return std::nullopt;
}

}  // namespace

int NumberFromEnvironment(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  int number = otherwise;
  return text != nullptr && absl::SimpleAtoi(text, &number) && number >= 0 ? number : otherwise;
}

CUuuid UuidOfNumber(int number) {
  CUuuid uuid = {};
  std::memcpy(uuid.bytes, "standin", 7);
  std::memcpy(uuid.bytes + 8, &number, sizeof(number));
  return uuid;
}

std::vector<int> VisibleDevices() {
  const int first = NumberFromEnvironment("CROSSMESH_STANDIN_FIRST_DEVICE", 0);
  const int count = NumberFromEnvironment("CROSSMESH_STANDIN_DEVICES", 1);
  std::vector<int> all;
  for (int index = 0; index < count; ++index) all.push_back(first + index);
  std::vector<int> visible;
  const char* const names = std::getenv("CUDA_VISIBLE_DEVICES");
  if (names == nullptr) {
    visible = all;
  } else {
    for (const absl::string_view name : absl::StrSplit(names, ',')) {
      const std::optional<int> number = FindDevice(name, all);
      if (!number.has_value()) break;
      visible.push_back(*number);
    }
  }
  if (AreInstances() && visible.size() > 1) visible.resize(1);
  return visible;
}

}  // namespace crossmesh
