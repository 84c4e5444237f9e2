#include "common/mesh/name_pattern.h"

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/mesh/text_scanner.h"

#include <algorithm>
#include <cstddef>

#include <absl/status/status.h>
#include <absl/strings/ascii.h>
#include <absl/strings/escaping.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

absl::Status Wrong(absl::string_view text, absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("pattern \"", absl::CHexEscape(text.substr(0, 120)), "\": ", why));
}

}  // namespace

absl::StatusOr<NamePattern> NamePattern::Parse(absl::string_view text) {
  if (text.empty()) return Wrong(text, "expected a pattern of tensor names, found nothing");
  NamePattern pattern;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool after_capture =
        !pattern.elements_.empty() && std::holds_alternative<Capture>(pattern.elements_.back());
    if (after_capture && absl::ascii_isdigit(text[i])) {
      return Wrong(text, absl::StrCat("the digit after {", pattern.captures_.back(),
                                      "} would belong to it; the pattern never matches"));
    }
    if (text[i] == '{') {
      const size_t close = text.find('}', i);
      if (close == absl::string_view::npos) return Wrong(text, "expected \"}\" after \"{\"");
      RETURN_IF_ERROR(pattern.AddCapture(text, text.substr(i + 1, close - i - 1)));
      i = close;
    } else if (text[i] == '*') {
      pattern.elements_.emplace_back(AnyRun());
    } else if (text[i] == '?') {
      pattern.elements_.emplace_back(AnyByte());
    } else {
      pattern.elements_.emplace_back(text[i]);
    }
  }
  return pattern;
}

absl::Status NamePattern::AddCapture(absl::string_view text, absl::string_view name) {
  if (!IsAxisName(name)) {
    return Wrong(text,
                 absl::StrCat("expected a capture {name} with a name of the form ",
                              "[a-z][a-z0-9_]{0,31}, found \"{", absl::CHexEscape(name), "}\""));
  }
  if (std::find(captures_.begin(), captures_.end(), name) != captures_.end()) {
    return Wrong(text, absl::StrCat("capture {", name, "} is named twice"));
  }
  if (!elements_.empty()) {
    const char* literal = std::get_if<char>(&elements_.back());
    const bool digit_before = literal != nullptr && absl::ascii_isdigit(*literal);
    if (digit_before || std::holds_alternative<Capture>(elements_.back())) {
      return Wrong(text, absl::StrCat("what stands before {", name,
                                      "} would belong to it; the pattern never matches"));
    }
  }
  elements_.emplace_back(Capture());
  captures_.emplace_back(name);
  return absl::OkStatus();
}

// How many bytes of `name` at `position` the element, not an AnyRun, stands for; 0 when none.
size_t NamePattern::BytesOfElement(const Element& element, absl::string_view name,
                                   size_t position) {
  if (position == name.size()) return 0;
  if (const char* literal = std::get_if<char>(&element)) return name[position] == *literal ? 1 : 0;
  if (std::holds_alternative<AnyByte>(element)) return 1;
  // So many digits always fit into an int64_t.
  constexpr size_t kDigitsMax = 18;
  // A capture is a whole number: it neither begins nor ends inside one.
  if (position > 0 && absl::ascii_isdigit(name[position - 1])) return 0;
  size_t digits = 0;
  while (position + digits < name.size() && absl::ascii_isdigit(name[position + digits])) ++digits;
  return digits <= kDigitsMax ? digits : 0;
}

// On a mismatch only the last "*" passed is extended. That is enough: each other element stands for
// bytes that its position alone decides, and a later start never gives an earlier end; so what the
// shortest match of an earlier "*" leaves to the rest of the pattern, no longer one could better.
std::optional<std::vector<int64_t>> NamePattern::Match(absl::string_view name) const {
  std::vector<int64_t> values;
  size_t element = 0;
  size_t position = 0;
  std::optional<size_t> star;  // the last AnyRun passed
  size_t star_end = 0;         // where what it stands for ends
  size_t star_values = 0;      // captures before it
  while (element < elements_.size() || position < name.size()) {
    if (element < elements_.size() && std::holds_alternative<AnyRun>(elements_[element])) {
      star = element++;
      star_end = position;
      star_values = values.size();
      continue;
    }
    const size_t bytes =
        element < elements_.size() ? BytesOfElement(elements_[element], name, position) : 0;
    if (bytes == 0) {
      if (!star || star_end == name.size()) return std::nullopt;
      position = ++star_end;
      element = *star + 1;
      values.resize(star_values);
      continue;
    }
    if (std::holds_alternative<Capture>(elements_[element])) {
      int64_t value = 0;
      CHECK(absl::SimpleAtoi(name.substr(position, bytes), &value));
      values.push_back(value);
    }
    ++element;
    position += bytes;
  }
  return values;
}

}  // namespace crossmesh
