#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>
#include <nlohmann/json.hpp>

namespace crossmesh {

// Parses one JSON document, strictly: InvalidArgument, naming `what` and the byte, for malformed
// text, numbers out of range, a key given twice in one object, and nesting deeper than 32.
absl::StatusOr<nlohmann::json> ParseJson(absl::string_view what, absl::string_view text);

// Reads the fields of one JSON object; every error names the object and the field.
// Thread-compatible.
class JsonFields {
 public:
  // InvalidArgument when `value` is not an object or has a key that is not in `known`. `where`
  // names the object in errors. `value` must outlive the result.
  static absl::StatusOr<JsonFields> Of(const nlohmann::json& value, std::string where,
                                       std::span<const absl::string_view> known);

  const std::string& where() const { return where_; }
  bool Has(absl::string_view key) const { return Find(key) != nullptr; }

  // InvalidArgument when the field is missing or of another type.
  absl::StatusOr<std::string> String(absl::string_view key) const;
  // Must be written as an integer, and fit in 64 bits with a sign.
  absl::StatusOr<int64_t> Integer(absl::string_view key) const;
  absl::StatusOr<std::vector<int64_t>> Integers(absl::string_view key) const;
  absl::StatusOr<std::vector<std::string>> Strings(absl::string_view key) const;
  // The result is an array.
  absl::StatusOr<const nlohmann::json*> Array(absl::string_view key) const;

 private:
  JsonFields(const nlohmann::json& object, std::string where)
      : object_(&object), where_(std::move(where)) {}

  const nlohmann::json* Find(absl::string_view key) const;
  absl::Status Mistyped(absl::string_view key, absl::string_view expected) const;

  const nlohmann::json* object_;
  std::string where_;
};

}  // namespace crossmesh
