#include "common/mesh/layout_text.h"

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/mesh/box_text.h"

#include <array>

#include <absl/strings/escaping.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

namespace crossmesh {
namespace {

// In the order of UnevenRule.
constexpr std::array<absl::string_view, 4> kRuleNames = {"exact", "chunk", "nested_chunk",
                                                         "balanced"};

std::string AxisLayoutToString(const AxisLayout& layout) {
  const std::string dimensions = absl::StrJoin(
      layout.dimensions, ", ", [](std::string* out, const std::vector<std::string>& axes) {
        absl::StrAppend(out, axes.empty() ? "-" : absl::StrJoin(axes, "*"));
      });
  const bool exact = layout.rule == UnevenRule::kExact;
  return absl::StrCat("[", dimensions, "]", exact ? "" : " ",
                      exact ? "" : UnevenRuleName(layout.rule));
}

std::string ExplicitLayoutToString(const ExplicitLayout& layout) {
  return absl::StrCat("{",
                      absl::StrJoin(layout.slots, "; ",
                                    [](std::string* out, const Tile& tile) {
                                      absl::StrAppend(
                                          out, absl::StrJoin(tile, " ", absl::StreamFormatter()));
                                    }),
                      "}");
}

// Axes that cut one dimension; none for "-".
absl::StatusOr<std::vector<std::string>> ScanDimension(TextScanner& scanner) {
  std::vector<std::string> axes;
  if (scanner.Take("-")) return axes;
  do {
    ASSIGN_OR_RETURN(const absl::string_view axis, scanner.AxisName());
    axes.emplace_back(axis);
  } while (scanner.Take("*"));
  return axes;
}

absl::StatusOr<LayoutTemplate> ScanAxisLayout(TextScanner& scanner) {
  RETURN_IF_ERROR(scanner.Expect("["));
  AxisLayout layout;
  std::optional<size_t> ellipsis;
  if (!scanner.Take("]")) {
    do {
      if (scanner.Take("...")) {
        if (ellipsis) return scanner.ErrorAtLast("\"...\" at most once");
        ellipsis = layout.dimensions.size();
      } else {
        ASSIGN_OR_RETURN(layout.dimensions.emplace_back(), ScanDimension(scanner));
      }
    } while (scanner.Take(","));
    RETURN_IF_ERROR(scanner.Expect("]"));
  }
  for (size_t rule = 0; rule < kRuleNames.size(); ++rule) {
    if (!scanner.TakeWord(kRuleNames[rule])) continue;
    layout.rule = static_cast<UnevenRule>(rule);
    break;
  }
  return LayoutTemplate{.layout = Layout(std::move(layout)), .ellipsis = ellipsis};
}

absl::StatusOr<LayoutTemplate> ScanExplicitLayout(TextScanner& scanner) {
  RETURN_IF_ERROR(scanner.Expect("{"));
  ExplicitLayout layout;
  layout.slots.emplace_back();
  while (!scanner.Take("}")) {
    if (scanner.Take(";")) {
      layout.slots.emplace_back();
      continue;
    }
    ASSIGN_OR_RETURN(layout.slots.back().emplace_back(), ScanBox(scanner));
  }
  return LayoutTemplate{.layout = Layout(std::move(layout))};
}

}  // namespace

absl::string_view UnevenRuleName(UnevenRule rule) {
  const auto index = static_cast<size_t>(rule);
  CHECK_LT(index, kRuleNames.size());
  return kRuleNames[index];
}

absl::StatusOr<UnevenRule> ParseUnevenRule(absl::string_view name) {
  for (size_t i = 0; i < kRuleNames.size(); ++i) {
    if (kRuleNames[i] == name) return static_cast<UnevenRule>(i);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("uneven rule \"", absl::CHexEscape(name.substr(0, 40)), "\": expected one of ",
                   absl::StrJoin(kRuleNames, ", ")));
}

std::string ToString(const Layout& layout) {
  return layout.axes() != nullptr ? AxisLayoutToString(*layout.axes())
                                  : ExplicitLayoutToString(*layout.tiles());
}

absl::StatusOr<LayoutTemplate> ScanLayout(TextScanner& scanner) {
  if (scanner.At("[")) return ScanAxisLayout(scanner);
  if (scanner.At("{")) return ScanExplicitLayout(scanner);
  return scanner.Error("a layout, which begins with \"[\" or \"{\"");
}

absl::StatusOr<Layout> ParseLayout(absl::string_view text) {
  TextScanner scanner("layout", text);
  ASSIGN_OR_RETURN(LayoutTemplate parsed, ScanLayout(scanner));
  if (parsed.ellipsis) {
    return absl::InvalidArgumentError(absl::StrCat(
        "layout \"", absl::CHexEscape(text.substr(0, 120)), "\": \"...\" needs a layout rule"));
  }
  if (!scanner.AtEnd()) {
    return scanner.Error(parsed.layout.axes() != nullptr
                             ? absl::StrCat("the end or one of ", absl::StrJoin(kRuleNames, ", "))
                             : "the end");
  }
  return std::move(parsed.layout);
}

}  // namespace crossmesh
