#pragma once

#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {

// A line `key = value` of a TOML file, below the table in which it stands.
struct TomlEntry {
  std::string table;  // empty: above all tables
  std::string key;
  std::string value;  // without quotes
  bool is_text = false;
  int line = 0;  // from 1
};

// The entries and the tables of a file of texts, numbers and truth values, each in a line of its
// own; a table is an entry without a key. InvalidArgument, with file and line: a line that is none
// of these, a table or a key that stands twice.
absl::StatusOr<std::vector<TomlEntry>> ParseToml(const std::string& file, const std::string& text);

}  // namespace crossmesh
