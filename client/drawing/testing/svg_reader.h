// Reads SVG text back, strictly: what a browser would have to guess is an error. For tests.

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

struct SvgElement {
  std::string name;
  std::map<std::string, std::string> attributes;
  std::string text;     // directly in it, as in the file
  int64_t parent = -1;  // index of the element that it is in

  std::string attribute(const std::string& key) const;  // "" where it has none
  double number(const std::string& key) const;
};

// All elements in the order in which they begin. InvalidArgument, with the place, for text that is
// not well-formed.
absl::StatusOr<std::vector<SvgElement>> ReadSvg(absl::string_view svg);

// The rectangles "Mx yhWvHh-Wz" of a path.
struct SvgBar {
  double x = 0, y = 0, width = 0, height = 0;
};
std::vector<SvgBar> ReadBars(const std::string& path);

}  // namespace crossmesh
