#include "common/mesh/layout_rules.h"

#include "common/base/error_place.h"
#include "common/base/status_macros.h"
#include "common/mesh/layout_text.h"
#include "common/mesh/text_scanner.h"

#include <algorithm>

#include <absl/status/status.h>
#include <absl/strings/ascii.h>
#include <absl/strings/escaping.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>

namespace crossmesh {
namespace {

constexpr absl::string_view kSpaces = " \t\r\v\f";

// The line without its comment: "#" at the start or after a space, up to the end.
absl::string_view WithoutComment(absl::string_view line) {
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '#' && (i == 0 || absl::ascii_isspace(line[i - 1]))) return line.substr(0, i);
  }
  return line;
}

bool IsOfDataType(char c) { return absl::ascii_isalnum(c) || c == '_'; }

std::string Quoted(absl::string_view tensor) {
  return absl::StrCat("\"", absl::CHexEscape(tensor.substr(0, 256)), "\"");
}

}  // namespace

// Reads one line that is not blank.
class LayoutRuleParser {
 public:
  static absl::StatusOr<LayoutRules::Rule> Parse(absl::string_view line, int number) {
    const size_t pattern_bytes = std::min(line.find_first_of(kSpaces), line.size());
    ASSIGN_OR_RETURN(NamePattern pattern, NamePattern::Parse(line.substr(0, pattern_bytes)));
    TextScanner scanner("layout rule", line.substr(pattern_bytes));
    ASSIGN_OR_RETURN(LayoutTemplate parsed, ScanLayout(scanner));
    std::vector<LayoutRules::Coordinate> coordinates;
    if (scanner.TakeWord("on")) {
      do {
        ASSIGN_OR_RETURN(coordinates.emplace_back(), ScanCoordinate(scanner, pattern.captures()));
      } while (scanner.Take(","));
    }
    std::optional<DataType> type;
    if (scanner.TakeWord("as")) {
      ASSIGN_OR_RETURN(type, ParseDataType(scanner.TakeWhile(IsOfDataType)));
    }
    if (!scanner.AtEnd()) {
      return scanner.Error(type.has_value()      ? "the end"
                           : coordinates.empty() ? "an uneven rule, \"on\", \"as\" or the end"
                                                 : "\",\", \"as\" or the end");
    }
    return LayoutRules::Rule{.line = number,
                             .pattern = std::move(pattern),
                             .layout = std::move(parsed.layout),
                             .ellipsis = parsed.ellipsis,
                             .coordinates = std::move(coordinates),
                             .type = type};
  }

 private:
  static absl::StatusOr<LayoutRules::Coordinate> ScanCoordinate(
      TextScanner& scanner, const std::vector<std::string>& captures) {
    LayoutRules::Coordinate coordinate;
    ASSIGN_OR_RETURN(const absl::string_view axis, scanner.AxisName());
    coordinate.axis = std::string(axis);
    RETURN_IF_ERROR(scanner.Expect("="));
    if (!scanner.Take("{")) {
      ASSIGN_OR_RETURN(coordinate.value, scanner.Integer());
      return coordinate;
    }
    ASSIGN_OR_RETURN(const absl::string_view name, scanner.AxisName());
    const auto capture = std::find(captures.begin(), captures.end(), name);
    if (capture == captures.end()) return scanner.ErrorAtLast("a capture of the rule's pattern");
    coordinate.capture = capture - captures.begin();
    RETURN_IF_ERROR(scanner.Expect("}"));
    if (scanner.Take("/")) {
      ASSIGN_OR_RETURN(coordinate.divisor, scanner.Integer());
      if (coordinate.divisor == 0) return scanner.ErrorAtLast("a divisor of at least 1");
    }
    return coordinate;
  }
};

absl::StatusOr<LayoutRules> LayoutRules::Parse(absl::string_view text) {
  LayoutRules rules;
  int number = 0;
  for (const absl::string_view whole_line : absl::StrSplit(text, '\n')) {
    ++number;
    const absl::string_view line = absl::StripAsciiWhitespace(WithoutComment(whole_line));
    if (line.empty()) continue;
    ASSIGN_OR_RETURN(Rule rule, At(absl::StrCat("layout rules, line ", number),
                                   LayoutRuleParser::Parse(line, number)));
    rules.rules_.push_back(std::move(rule));
  }
  return rules;
}

absl::StatusOr<Layout> LayoutRules::LayoutForRank(const Rule& rule, absl::string_view tensor,
                                                  int rank) {
  // The rank of explicit tiles is that of their boxes; Layout::Validate compares it.
  if (rule.layout.axes() == nullptr) return rule.layout;
  AxisLayout layout = *rule.layout.axes();
  const int named = static_cast<int>(layout.dimensions.size());
  if (named > rank || (named < rank && !rule.ellipsis)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "tensor ", Quoted(tensor), ": expected a rank of ", rule.ellipsis ? "at least " : "", named,
        ", as layout rules, line ", rule.line, ", say, found ", rank));
  }
  if (rule.ellipsis) {
    layout.dimensions.insert(layout.dimensions.begin() + static_cast<ptrdiff_t>(*rule.ellipsis),
                             rank - named, {});
  }
  return Layout(std::move(layout));
}

absl::StatusOr<RuleMatch> LayoutRules::Match(absl::string_view tensor, int rank) const {
  // The first rule that matches counts.
  for (const Rule& rule : rules_) {
    const std::optional<std::vector<int64_t>> captured = rule.pattern.Match(tensor);
    if (!captured) continue;
    RuleMatch match;
    ASSIGN_OR_RETURN(match.layout, LayoutForRank(rule, tensor, rank));
    for (const Coordinate& coordinate : rule.coordinates) {
      const int64_t value =
          coordinate.capture ? (*captured)[*coordinate.capture] : coordinate.value;
      match.coordinates.emplace_back(coordinate.axis, value / coordinate.divisor);
    }
    match.type = rule.type;
    match.line = rule.line;
    return match;
  }
  return absl::NotFoundError(absl::StrCat("tensor ", Quoted(tensor), ": expected one of the ",
                                          rules_.size(), " layout rules to match it, found none"));
}

}  // namespace crossmesh
