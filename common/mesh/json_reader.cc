#include "common/mesh/json_reader.h"

#include "common/base/status_macros.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

#include <absl/strings/escaping.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

namespace crossmesh {
namespace {

using nlohmann::json;

// Far deeper than any file of ours.
constexpr size_t kDepthMax = 32;

std::string Escaped(absl::string_view text) { return absl::CHexEscape(text.substr(0, 80)); }

// Builds the document from the parser's events. The library's own builder lets the last of two
// equal keys win, and does not limit the depth.
class DocumentBuilder : public nlohmann::json_sax<json> {
 public:
  json& document() { return document_; }
  const std::string& error() const { return error_; }

  bool null() override { return Add(nullptr); }
  bool boolean(bool value) override { return Add(value); }
  bool number_integer(json::number_integer_t value) override { return Add(value); }
  bool number_unsigned(json::number_unsigned_t value) override { return Add(value); }
  bool number_float(json::number_float_t value, const std::string& /*text*/) override {
    return Add(value);
  }
  bool string(std::string& value) override { return Add(std::move(value)); }
  bool binary(json::binary_t& /*value*/) override { return Fail("binary values are not JSON"); }
  bool start_object(size_t /*count*/) override { return Open(json::object()); }
  bool start_array(size_t /*count*/) override { return Open(json::array()); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }

  bool key(std::string& name) override {
    if (open_.back()->contains(name)) {
      return Fail(absl::StrCat("key \"", Escaped(name), "\" is given twice in one object"));
    }
    key_ = std::move(name);
    return true;
  }

  bool parse_error(size_t position, const std::string& last_token,
                   const json::exception& /*error*/) override {
    return Fail(
        absl::StrCat("malformed at byte ", position, ", near \"", Escaped(last_token), "\""));
  }

 private:
  bool Fail(std::string error) {
    error_ = std::move(error);
    return false;
  }

  json* Place(json value) {
    if (open_.empty()) return &(document_ = std::move(value));
    json& parent = *open_.back();
    if (parent.is_object()) return &(parent[std::move(key_)] = std::move(value));
    parent.push_back(std::move(value));
    return &parent.back();
  }

  bool Add(json value) {
    Place(std::move(value));
    return true;
  }

  bool Open(json value) {
    if (open_.size() == kDepthMax) {
      return Fail(absl::StrCat("nested deeper than ", kDepthMax));
    }
    open_.push_back(Place(std::move(value)));
    return true;
  }

  bool Close() {
    open_.pop_back();
    return true;
  }

  json document_;
  std::vector<json*> open_;  // the objects and arrays around the next value, outermost first
  std::string key_;
  std::string error_;
};

std::optional<int64_t> IntegerOf(const json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
    return static_cast<int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  return std::nullopt;
}

}  // namespace

absl::StatusOr<json> ParseJson(absl::string_view what, absl::string_view text) {
  // The library takes a zero byte for the end of the text, whatever follows.
  if (const size_t zero = text.find('\0'); zero != absl::string_view::npos) {
    return absl::InvalidArgumentError(absl::StrCat(
        what, ": expected strict JSON, found: malformed at byte ", zero + 1, ", a zero byte"));
  }
  DocumentBuilder builder;
  if (!json::sax_parse(text.begin(), text.end(), &builder)) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": expected strict JSON, found: ", builder.error()));
  }
  return std::move(builder.document());
}

absl::StatusOr<JsonFields> JsonFields::Of(const json& value, std::string where,
                                          std::span<const absl::string_view> known) {
  if (!value.is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": expected an object, found ", value.type_name()));
  }
  for (const auto& [key, unused] : value.items()) {
    if (std::find(known.begin(), known.end(), absl::string_view(key)) == known.end()) {
      return absl::InvalidArgumentError(absl::StrCat(where, ": unknown key \"", Escaped(key),
                                                     "\"; expected ", absl::StrJoin(known, ", ")));
    }
  }
  return JsonFields(value, std::move(where));
}

const json* JsonFields::Find(absl::string_view key) const {
  const auto found = object_->find(std::string(key));
  return found == object_->end() ? nullptr : &*found;
}

absl::Status JsonFields::Mistyped(absl::string_view key, absl::string_view expected) const {
  const json* value = Find(key);
  return absl::InvalidArgumentError(
      absl::StrCat(where_, ": expected \"", key, "\" to be ", expected, ", found ",
                   value == nullptr ? "nothing" : value->type_name()));
}

absl::StatusOr<std::string> JsonFields::String(absl::string_view key) const {
  const json* value = Find(key);
  if (value == nullptr || !value->is_string()) return Mistyped(key, "a string");
  return value->get<std::string>();
}

absl::StatusOr<int64_t> JsonFields::Integer(absl::string_view key) const {
  const json* value = Find(key);
  const std::optional<int64_t> number = value == nullptr ? std::nullopt : IntegerOf(*value);
  if (!number) return Mistyped(key, "an integer below 2^63");
  return *number;
}

absl::StatusOr<const json*> JsonFields::Array(absl::string_view key) const {
  const json* value = Find(key);
  if (value == nullptr || !value->is_array()) return Mistyped(key, "an array");
  return value;
}

absl::StatusOr<std::vector<int64_t>> JsonFields::Integers(absl::string_view key) const {
  ASSIGN_OR_RETURN(const json* array, Array(key));
  std::vector<int64_t> numbers;
  for (const json& value : *array) {
    const std::optional<int64_t> number = IntegerOf(value);
    if (!number) {
      return absl::InvalidArgumentError(
          absl::StrCat(where_, ": expected \"", key, "\"[", numbers.size(),
                       "] to be an integer below 2^63, found ", value.type_name()));
    }
    numbers.push_back(*number);
  }
  return numbers;
}

absl::StatusOr<std::vector<std::string>> JsonFields::Strings(absl::string_view key) const {
  ASSIGN_OR_RETURN(const json* array, Array(key));
  std::vector<std::string> strings;
  for (const json& value : *array) {
    if (!value.is_string()) {
      return absl::InvalidArgumentError(absl::StrCat(where_, ": expected \"", key, "\"[",
                                                     strings.size(), "] to be a string, found ",
                                                     value.type_name()));
    }
    strings.push_back(value.get<std::string>());
  }
  return strings;
}

}  // namespace crossmesh
