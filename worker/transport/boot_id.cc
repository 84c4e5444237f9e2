#include "worker/transport/boot_id.h"

#include <algorithm>
#include <fstream>

#include <absl/status/status.h>
#include <absl/strings/escaping.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr char kBootIdPath[] = "/proc/sys/kernel/random/boot_id";

}  // namespace

absl::StatusOr<std::string> ReadBootId() {
  std::ifstream file(kBootIdPath);
  std::string text;
  file >> text;
  text.erase(std::remove(text.begin(), text.end(), '-'), text.end());
  std::string boot_id = absl::HexStringToBytes(text);
  if (text.size() != 2 * kBootIdBytes || boot_id.size() != kBootIdBytes) {
    return absl::InternalError(absl::StrCat(kBootIdPath, ": expected an id, found \"", text, "\""));
  }
  return boot_id;
}

}  // namespace crossmesh
