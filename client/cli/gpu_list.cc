#include "client/cli/gpu_list.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>

#include <absl/strings/ascii.h>
#include <absl/strings/strip.h>

namespace crossmesh {
namespace {

namespace fs = std::filesystem;

// Of the line "GPU UUID: 	 GPU-4bd8..."; empty without one.
std::string UuidIn(const fs::path& file) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    absl::string_view rest = line;
    if (absl::ConsumePrefix(&rest, "GPU UUID:")) {
      return std::string(absl::StripAsciiWhitespace(rest));
    }
  }
  return "";
}

}  // namespace

std::vector<std::string> ListGpus(const std::string& folder) {
  std::error_code error;
  std::vector<fs::path> places;
  for (const fs::directory_entry& place : fs::directory_iterator(folder, error)) {
    places.push_back(place.path());
  }
  std::ranges::sort(places);
  std::vector<std::string> gpus;
  for (const fs::path& place : places) {
    std::string uuid = UuidIn(place / "information");
    if (!uuid.empty()) gpus.push_back(std::move(uuid));
  }
  return gpus;
}

}  // namespace crossmesh
