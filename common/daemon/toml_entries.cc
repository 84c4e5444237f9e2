#include "common/daemon/toml_entries.h"

#include "common/base/status_macros.h"

#include <algorithm>
#include <set>
#include <sstream>
#include <utility>

#include <CLI/CLI.hpp>
#include <absl/status/status.h>
#include <absl/strings/ascii.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <absl/strings/string_view.h>

namespace crossmesh {
namespace {

constexpr absl::string_view kNameLetters =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";

bool IsName(absl::string_view text) {
  return !text.empty() && text.find_first_not_of(kNameLetters) == absl::string_view::npos;
}

bool IsBlank(absl::string_view text) {
  const absl::string_view stripped = absl::StripAsciiWhitespace(text);
  return stripped.empty() || stripped.front() == '#';
}

absl::Status Refuse(absl::string_view place, absl::string_view expected, absl::string_view found) {
  return absl::InvalidArgumentError(
      absl::StrCat(place, ": expected ", expected, ", found \"", found, "\""));
}

// "[name]", which may be quoted.
absl::StatusOr<std::string> ParseTable(absl::string_view place, absl::string_view line) {
  const size_t end = line.find(']');
  if (end == absl::string_view::npos || !IsBlank(line.substr(end + 1))) {
    return Refuse(place, "[TABLE]", line);
  }
  absl::string_view name = absl::StripAsciiWhitespace(line.substr(1, end - 1));
  const bool is_quoted = name.size() > 2 && name.front() == '"' && name.back() == '"';
  if (is_quoted) name = name.substr(1, name.size() - 2);
  if (!IsName(name)) return Refuse(place, "[TABLE]", line);
  return std::string(name);
}

// What follows a value that begins with a quote ends with the same one.
bool IsWhole(absl::string_view value) {
  if (value.empty()) return false;
  if (value.front() != '"' && value.front() != '\'') {
    const size_t space = std::min(value.find_first_of(" \t"), value.size());
    return value.substr(0, space).find_first_of("\"'[]{},") == absl::string_view::npos &&
           IsBlank(value.substr(space));
  }
  const size_t end = value.find(value.front(), 1);
  return end != absl::string_view::npos && IsBlank(value.substr(end + 1));
}

absl::StatusOr<TomlEntry> ParseEntry(absl::string_view place, absl::string_view line) {
  const size_t equals = line.find('=');
  const absl::string_view key = absl::StripAsciiWhitespace(line.substr(0, equals));
  const absl::string_view value =
      equals == absl::string_view::npos ? "" : absl::StripAsciiWhitespace(line.substr(equals + 1));
  if (!IsName(key) || !IsWhole(value)) return Refuse(place, "KEY = VALUE", line);
  std::istringstream stream{std::string(line)};
  const std::vector<CLI::ConfigItem> items = CLI::ConfigTOML().from_config(stream);
  if (items.size() != 1 || items.front().inputs.size() != 1) {
    return Refuse(place, "KEY = VALUE", line);
  }
  return TomlEntry{.key = std::string(key),
                   .value = items.front().inputs.front(),
                   .is_text = value.front() == '"' || value.front() == '\''};
}

}  // namespace

absl::StatusOr<std::vector<TomlEntry>> ParseToml(const std::string& file, const std::string& text) {
  std::vector<TomlEntry> entries;
  std::set<std::pair<std::string, std::string>> known;
  std::string table;
  int number = 0;
  for (const absl::string_view whole : absl::StrSplit(text, '\n')) {
    ++number;
    if (IsBlank(whole)) continue;
    const absl::string_view line = absl::StripAsciiWhitespace(whole);
    const std::string place = absl::StrCat(file, ":", number);
    TomlEntry entry;
    if (line.front() == '[') {
      ASSIGN_OR_RETURN(table, ParseTable(place, line));
    } else {
      ASSIGN_OR_RETURN(entry, ParseEntry(place, line));
    }
    entry.table = table;
    entry.line = number;
    if (!known.emplace(table, entry.key).second) return Refuse(place, "each once", line);
    entries.push_back(std::move(entry));
  }
  return entries;
}

}  // namespace crossmesh
