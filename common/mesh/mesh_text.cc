// The text forms of meshes and their parts.

#include "common/base/status_macros.h"
#include "common/mesh/device_text.h"
#include "common/mesh/mesh.h"
#include "common/mesh/text_scanner.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

namespace crossmesh {
namespace {

// NAME=NUMBER {, NAME=NUMBER}
absl::StatusOr<Coordinates> ScanAssignments(TextScanner& scanner) {
  Coordinates assignments;
  do {
    ASSIGN_OR_RETURN(const absl::string_view name, scanner.AxisName());
    RETURN_IF_ERROR(scanner.Expect("="));
    ASSIGN_OR_RETURN(const int64_t value, scanner.Integer());
    assignments.emplace_back(name, value);
  } while (scanner.Take(","));
  return assignments;
}

absl::StatusOr<std::vector<Axis>> ScanAxes(TextScanner& scanner) {
  ASSIGN_OR_RETURN(Coordinates assignments, ScanAssignments(scanner));
  std::vector<Axis> axes;
  for (auto& [name, size] : assignments) axes.push_back({std::move(name), size});
  return axes;
}

absl::StatusOr<std::vector<DeviceId>> ScanDevices(TextScanner& scanner) {
  std::vector<DeviceId> devices;
  do {
    ASSIGN_OR_RETURN(const DeviceRange run, ScanDeviceRange(scanner));
    for (int32_t index = run.first; index <= run.last; ++index) {
      devices.push_back({.host = run.host, .index = index});
    }
    // Inside the loop: a short text of runs can name more devices than there is memory for.
    if (devices.size() > Mesh::kSlotsMax) {
      return scanner.ErrorAtLast(absl::StrCat("at most ", Mesh::kSlotsMax, " devices"));
    }
  } while (scanner.Take(","));
  return devices;
}

// All of a text that may be empty.
template <typename List>
absl::StatusOr<List> ParseList(absl::string_view what, absl::string_view text,
                               absl::StatusOr<List> (*scan)(TextScanner&)) {
  TextScanner scanner(what, text);
  if (scanner.AtEnd()) return List();
  ASSIGN_OR_RETURN(List list, scan(scanner));
  RETURN_IF_ERROR(scanner.ExpectEnd());
  return list;
}

}  // namespace

std::string AxesToString(std::span<const Axis> axes) {
  return absl::StrJoin(axes, ",", [](std::string* out, const Axis& axis) {
    absl::StrAppend(out, axis.name, "=", axis.size);
  });
}

std::string DevicesToString(std::span<const DeviceId> devices) {
  std::string text;
  for (size_t first = 0; first < devices.size();) {
    size_t last = first;
    while (last + 1 < devices.size() && devices[last + 1].host == devices[last].host &&
           devices[last + 1].index == devices[last].index + 1) {
      ++last;
    }
    absl::StrAppend(&text, first > 0 ? "," : "", ToString(devices[first]));
    if (last > first) absl::StrAppend(&text, "-", devices[last].index);
    first = last + 1;
  }
  return text;
}

std::string ToString(const Mesh& mesh) {
  return absl::StrCat(AxesToString(mesh.axes()), mesh.axes().empty() ? "" : " ", "on ",
                      DevicesToString(mesh.devices()));
}

std::string CoordinatesToString(std::span<const std::pair<std::string, int64_t>> coordinates) {
  return absl::StrJoin(coordinates, ",", absl::PairFormatter("="));
}

absl::StatusOr<Mesh> ParseMesh(absl::string_view text) {
  TextScanner scanner("mesh", text);
  std::vector<Axis> axes;
  if (!scanner.TakeWord("on")) {
    ASSIGN_OR_RETURN(axes, ScanAxes(scanner));
    if (!scanner.TakeWord("on")) return scanner.Error("\",\" or \"on\"");
  }
  ASSIGN_OR_RETURN(std::vector<DeviceId> devices, ScanDevices(scanner));
  RETURN_IF_ERROR(scanner.ExpectEnd());
  return Mesh::Create(std::move(axes), std::move(devices));
}

absl::StatusOr<std::vector<Axis>> ParseAxes(absl::string_view text) {
  return ParseList("axes", text, ScanAxes);
}

absl::StatusOr<std::vector<DeviceId>> ParseDevices(absl::string_view text) {
  return ParseList("devices", text, ScanDevices);
}

absl::StatusOr<Coordinates> ParseCoordinates(absl::string_view text) {
  return ParseList("coordinates", text, ScanAssignments);
}

}  // namespace crossmesh
