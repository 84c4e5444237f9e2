#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace crossmesh {

// Text in aligned columns under an underlined header, for the command line:
//
//   NAME    BYTES
//   -----  ------
//   wte    154 MB
//
// is TextTable({"NAME", "BYTES>"}). Widths count bytes, so cells should be ASCII.
// Thread-compatible.
class TextTable {
 public:
  // By their headers; a ">" that ends one aligns its column to the right, and is not shown.
  explicit TextTable(const std::vector<std::string>& columns);

  // `cells` has one entry per column.
  void AddRow(std::vector<std::string> cells);

  std::size_t row_count() const { return rows_.size(); }

  // All lines, each ended by a newline, without trailing spaces.
  std::string ToString() const;
  // The lines that were not taken yet, for what is printed as it comes: the header once, and every
  // row once. Columns never become narrower, and are wider from the row on that needs it.
  std::string TakeText();

 private:
  struct Column {
    std::string header;
    bool is_right = false;
  };

  void AppendHeader(std::string& out) const;
  void AppendRow(const std::vector<std::string>& cells, std::string& out) const;

  std::vector<Column> columns_;
  std::vector<std::size_t> widths_;
  std::vector<std::vector<std::string>> rows_;
  bool header_taken_ = false;
};

}  // namespace crossmesh
