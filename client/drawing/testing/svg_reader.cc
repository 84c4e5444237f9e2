#include "client/drawing/testing/svg_reader.h"

#include <cstdio>
#include <cstdlib>
#include <regex>
#include <utility>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// References are those that the writer makes.
bool IsEscaped(const std::string& text) {
  static const std::regex kEscaped(R"(([^&<>]|&(amp|lt|gt|quot);)*)");
  return text.size() > 2000 ? text.find_first_of("&<>") == std::string::npos
                            : std::regex_match(text, kEscaped);
}

bool ReadAttributes(std::string text, SvgElement& element) {
  while (!text.empty()) {
    const size_t equals = text.find("=\"");
    if (text[0] != ' ' || equals == std::string::npos) return false;
    const size_t end = text.find('"', equals + 2);
    if (end == std::string::npos) return false;
    const std::string value = text.substr(equals + 2, end - equals - 2);
    const bool is_new = element.attributes.emplace(text.substr(1, equals - 1), value).second;
    if (!is_new || !IsEscaped(value)) return false;
    text.erase(0, end + 1);
  }
  return true;
}

}  // namespace

std::string SvgElement::attribute(const std::string& key) const {
  const auto found = attributes.find(key);
  return found == attributes.end() ? "" : found->second;
}

double SvgElement::number(const std::string& key) const {
  return std::strtod(attribute(key).c_str(), nullptr);
}

absl::StatusOr<std::vector<SvgElement>> ReadSvg(absl::string_view svg) {
  std::vector<SvgElement> elements;
  std::vector<int64_t> open;
  size_t at = 0;
  const auto wrong = [&at](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("at byte ", at, ": ", what));
  };
  while (at < svg.size()) {
    const size_t begin = svg.find('<', at);
    const std::string text(svg.substr(at, begin == svg.npos ? svg.npos : begin - at));
    if (!IsEscaped(text)) return wrong("text is not escaped");
    if (!open.empty()) elements[open.back()].text += text;
    if (begin == svg.npos) break;
    const size_t end = svg.find('>', begin);
    if (end == svg.npos) return wrong("a tag does not end");
    std::string tag(svg.substr(begin + 1, end - begin - 1));
    at = end + 1;
    if (tag[0] == '/') {
      if (open.empty() || elements[open.back()].name != tag.substr(1)) return wrong(tag);
      open.pop_back();
      continue;
    }
    const bool is_empty = tag.back() == '/';
    if (is_empty) tag.pop_back();
    if (open.empty() && !elements.empty()) return wrong("a second root");
    SvgElement element{.parent = open.empty() ? -1 : open.back()};
    element.name = tag.substr(0, tag.find(' '));
    if (!ReadAttributes(tag.substr(element.name.size()), element)) return wrong(tag);
    if (!is_empty) open.push_back(static_cast<int64_t>(elements.size()));
    elements.push_back(std::move(element));
  }
  if (!open.empty()) return wrong("an element does not end");
  return elements;
}

std::vector<SvgBar> ReadBars(const std::string& path) {
  std::vector<SvgBar> bars;
  for (size_t at = 0; at < path.size(); at = path.find('z', at) + 1) {
    SvgBar bar;
    if (std::sscanf(path.c_str() + at, "M%lf %lfh%lfv%lf", &bar.x, &bar.y, &bar.width,
                    &bar.height) != 4) {
      break;
    }
    bars.push_back(bar);
  }
  return bars;
}

}  // namespace crossmesh
