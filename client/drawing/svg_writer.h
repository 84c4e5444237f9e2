#pragma once

#include <cstddef>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// "12", "12.5": a length in pixels with at most one decimal, so that pictures stay small.
std::string SvgNumber(double value);

// The text itself, or its beginning and end around two dots where it has more characters.
std::string SvgLabel(absl::string_view text, size_t characters);

// Builds the text of one SVG picture. Everything that is text is escaped; bytes that XML cannot
// hold become question marks. Thread-compatible.
class SvgWriter {
 public:
  struct Attribute {
    Attribute(absl::string_view n, absl::string_view v) : name(n), value(v) {}
    Attribute(absl::string_view n, double v) : name(n), value(SvgNumber(v)) {}
    absl::string_view name;
    std::string value;
  };
  using Attributes = std::initializer_list<Attribute>;

  // Opens the root: `width` x `height` pixels, `style` its CSS.
  SvgWriter(double width, double height, absl::string_view style);

  void Open(absl::string_view element, Attributes attributes = {});
  void Close();
  void Add(absl::string_view element, Attributes attributes);
  // An element that holds nothing but text.
  void AddText(absl::string_view element, absl::string_view text, Attributes attributes = {});

  // Closes what is open.
  std::string Finish() &&;

 private:
  void Begin(absl::string_view element, Attributes attributes);

  std::string text_;
  std::vector<std::string> open_;
};

}  // namespace crossmesh
