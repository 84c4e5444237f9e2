#include "client/drawing/svg_writer.h"

#include <cmath>
#include <cstdint>

#include <absl/strings/str_format.h>

namespace crossmesh {
namespace {

void AppendEscaped(std::string& out, absl::string_view text) {
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c < ' ' || c > '~' ? '?' : c;  // char is signed: what is not ASCII is below
    }
  }
}

}  // namespace

std::string SvgNumber(double value) {
  const auto tenths = static_cast<int64_t>(std::llround(value * 10));
  if (tenths % 10 == 0) return absl::StrCat(tenths / 10);
  return absl::StrFormat("%.1f", static_cast<double>(tenths) / 10);
}

std::string SvgLabel(absl::string_view text, size_t characters) {
  if (text.size() <= characters) return std::string(text);
  const size_t end = (characters - 2) / 3;
  return absl::StrCat(text.substr(0, characters - 2 - end), "..", text.substr(text.size() - end));
}

SvgWriter::SvgWriter(double width, double height, absl::string_view style) {
  Open("svg", {{"xmlns", "http://www.w3.org/2000/svg"},
               {"width", width},
               {"height", height},
               {"viewBox", absl::StrCat("0 0 ", SvgNumber(width), " ", SvgNumber(height))},
               {"role", "img"}});
  AddText("style", style);
}

void SvgWriter::Begin(absl::string_view element, Attributes attributes) {
  absl::StrAppend(&text_, "<", element);
  for (const Attribute& attribute : attributes) {
    absl::StrAppend(&text_, " ", attribute.name, "=\"");
    AppendEscaped(text_, attribute.value);
    text_ += '"';
  }
}

void SvgWriter::Open(absl::string_view element, Attributes attributes) {
  Begin(element, attributes);
  text_ += ">\n";
  open_.emplace_back(element);
}

void SvgWriter::Close() {
  absl::StrAppend(&text_, "</", open_.back(), ">\n");
  open_.pop_back();
}

void SvgWriter::Add(absl::string_view element, Attributes attributes) {
  Begin(element, attributes);
  text_ += "/>\n";
}

void SvgWriter::AddText(absl::string_view element, absl::string_view text, Attributes attributes) {
  Begin(element, attributes);
  text_ += '>';
  AppendEscaped(text_, text);
  absl::StrAppend(&text_, "</", element, ">\n");
}

std::string SvgWriter::Finish() && {
  while (!open_.empty()) Close();
  return std::move(text_);
}

}  // namespace crossmesh
