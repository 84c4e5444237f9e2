#include "client/planning/layout_rule_text.h"

#include "common/base/status_macros.h"
#include "common/mesh/data_type.h"
#include "common/mesh/layout_rules.h"

#include <algorithm>
#include <string>
#include <utility>

#include <absl/strings/ascii.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <absl/strings/strip.h>

namespace crossmesh {
namespace {

absl::string_view WithoutComment(absl::string_view line) {
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '#' && (i == 0 || absl::ascii_isspace(line[i - 1]))) return line.substr(0, i);
  }
  return line;
}

// Takes "as BF16" off the end, if it is there, and returns the type.
std::string TakeType(absl::string_view& tail) {
  const size_t type_begin = tail.find_last_of(" \t") + 1;
  const absl::string_view type = tail.substr(type_begin);
  absl::string_view before = absl::StripTrailingAsciiWhitespace(tail.substr(0, type_begin));
  if (!ParseDataType(type).ok() || !absl::ConsumeSuffix(&before, "as")) return "";
  tail = absl::StripTrailingAsciiWhitespace(before);
  return std::string(type);
}

// Takes a line that LayoutRules::Parse has accepted apart: pattern, layout, and what follows "on"
// and "as".
v1::LayoutRule SplitRule(absl::string_view line) {
  const size_t pattern_end = line.find_first_of(" \t");
  absl::string_view rest = absl::StripAsciiWhitespace(line.substr(pattern_end));
  // Explicit tiles have brackets inside, but no brace.
  const size_t form_end = rest.find(rest.front() == '{' ? '}' : ']') + 1;
  absl::string_view tail = absl::StripAsciiWhitespace(rest.substr(form_end));
  std::string layout(rest.substr(0, form_end));
  v1::LayoutRule rule;
  rule.set_pattern(std::string(line.substr(0, pattern_end)));
  rule.set_dtype(TakeType(tail));
  const size_t word_end = std::min(tail.find_first_of(" \t"), tail.size());
  if (word_end > 0 && tail.substr(0, word_end) != "on") {
    absl::StrAppend(&layout, " ", tail.substr(0, word_end));
    tail = absl::StripAsciiWhitespace(tail.substr(word_end));
  }
  rule.set_layout(std::move(layout));
  if (absl::ConsumePrefix(&tail, "on")) rule.set_on(std::string(absl::StripAsciiWhitespace(tail)));
  return rule;
}

}  // namespace

absl::StatusOr<std::vector<v1::LayoutRule>> SplitRules(absl::string_view text) {
  RETURN_IF_ERROR(LayoutRules::Parse(text).status());
  std::vector<v1::LayoutRule> rules;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const absl::string_view rule = absl::StripAsciiWhitespace(WithoutComment(line));
    if (!rule.empty()) rules.push_back(SplitRule(rule));
  }
  return rules;
}

}  // namespace crossmesh
