#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// A pattern that a whole tensor name matches or not: "*" stands for any run of bytes, "?" for one
// byte, "{name}" for a run of decimal digits that is not a part of a longer one, whose value it
// captures; every other byte for itself. A "*" takes as little as lets the rest match. Private to
// the module. Immutable.
//
// Example: "h.{l}.*" matches "h.11.ln_1.weight" with l = 11.
class NamePattern {
 public:
  // InvalidArgument: an empty pattern, a capture that is not closed, misnamed, named twice, or that
  // can never match because a digit or another capture touches it.
  static absl::StatusOr<NamePattern> Parse(absl::string_view text);

  // In the order of the pattern.
  const std::vector<std::string>& captures() const { return captures_; }

  // The captured values, or nothing when the name does not match. A capture matches at most 18
  // digits. Cost: at most the product of both lengths.
  std::optional<std::vector<int64_t>> Match(absl::string_view name) const;

 private:
  struct AnyRun {};
  struct AnyByte {};
  struct Capture {};
  // A char stands for itself.
  using Element = std::variant<char, AnyRun, AnyByte, Capture>;

  NamePattern() = default;
  absl::Status AddCapture(absl::string_view text, absl::string_view name);
  static size_t BytesOfElement(const Element& element, absl::string_view name, size_t position);

  std::vector<Element> elements_;
  std::vector<std::string> captures_;
};

}  // namespace crossmesh
