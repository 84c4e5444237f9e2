#include "common/base/table.h"

#include "common/base/check.h"

#include <algorithm>
#include <utility>

#include <absl/strings/string_view.h>
#include <absl/strings/strip.h>

namespace crossmesh {

TextTable::TextTable(const std::vector<std::string>& columns) {
  for (absl::string_view header : columns) {
    const bool is_right = absl::ConsumeSuffix(&header, ">");
    columns_.push_back({.header = std::string(header), .is_right = is_right});
    widths_.push_back(header.size());
  }
}

void TextTable::AddRow(std::vector<std::string> cells) {
  CHECK_EQ(cells.size(), columns_.size());
  for (std::size_t i = 0; i < cells.size(); ++i) {
    widths_[i] = std::max(widths_[i], cells[i].size());
  }
  rows_.push_back(std::move(cells));
}

std::string TextTable::ToString() const {
  std::string out;
  AppendHeader(out);
  for (const std::vector<std::string>& row : rows_) AppendRow(row, out);
  return out;
}

std::string TextTable::TakeText() {
  std::string out;
  if (!std::exchange(header_taken_, true)) AppendHeader(out);
  for (const std::vector<std::string>& row : std::exchange(rows_, {})) AppendRow(row, out);
  return out;
}

void TextTable::AppendHeader(std::string& out) const {
  std::vector<std::string> headers;
  std::vector<std::string> underlines;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    headers.push_back(columns_[i].header);
    underlines.emplace_back(widths_[i], '-');
  }
  AppendRow(headers, out);
  AppendRow(underlines, out);
}

void TextTable::AppendRow(const std::vector<std::string>& cells, std::string& out) const {
  const std::size_t start = out.size();
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const std::string padding(widths_[i] - cells[i].size(), ' ');
    if (i > 0) out += "  ";
    out += columns_[i].is_right ? padding + cells[i] : cells[i] + padding;
  }
  const std::size_t last = out.find_last_not_of(' ');
  // A row of empty cells is an empty line; it must not eat the line before it.
  out.resize(last == std::string::npos ? start : std::max(start, last + 1));
  out += '\n';
}

}  // namespace crossmesh
