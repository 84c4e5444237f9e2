#include "client/cli/command_line.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <numeric>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <absl/strings/escaping.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/strings/string_view.h>

namespace crossmesh {
namespace {

class Help final : public CLI::Formatter {
 public:
  std::string make_subcommand(const CLI::App* command) const override {
    std::ostringstream line;
    CLI::detail::format_help(line, command->get_name(), command->get_description(), column_width_);
    return line.str();
  }
};

// How many letters must be put in, taken out or replaced to make one of the other (Levenshtein).
size_t Distance(absl::string_view from, absl::string_view to) {
  std::vector<size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < from.size(); ++i) {
    size_t corner = row[0];  // of the row above
    row[0] = i + 1;
    for (size_t j = 0; j < to.size(); ++j) {
      const size_t replaced = corner + (from[i] == to[j] ? 0 : 1);
      corner = row[j + 1];
      row[j + 1] = std::min({replaced, corner + 1, row[j] + 1});
    }
  }
  return row[to.size()];
}

std::optional<std::string> Nearest(absl::string_view word, const std::vector<std::string>& names) {
  std::optional<std::string> nearest;
  size_t least = (word.size() + 2) / 3 + 1;  // more than a third wrong is another word
  for (const std::string& name : names) {
    // A beginning is as good as a letter too few.
    const size_t distance = absl::StartsWith(name, word)
                                ? std::min<size_t>(1, name.size() - word.size())
                                : Distance(word, name);
    if (distance >= least) continue;
    least = distance;
    nearest = name;
  }
  return nearest;
}

std::vector<std::string> NamesOf(const std::vector<const CLI::App*>& commands) {
  std::vector<std::string> names;
  for (const CLI::App* command : commands) names.push_back(command->get_name());
  return names;
}

}  // namespace

absl::Status CheckCommandNames(const CLI::App& app) {
  // The group or command that the last known name is of.
  const CLI::App* last = &app;
  while (!last->get_subcommands().empty()) last = last->get_subcommands().front();
  const std::vector<std::string> names = NamesOf(last->get_subcommands({}));
  if (names.empty()) return absl::OkStatus();
  const std::vector<std::string> unknown = last->remaining();
  const auto word = std::ranges::find_if(
      unknown, [](const std::string& argument) { return !absl::StartsWith(argument, "-"); });
  if (word == unknown.end()) return absl::OkStatus();
  const std::optional<std::string> nearest = Nearest(*word, names);
  return absl::InvalidArgumentError(
      absl::StrCat(last == &app ? "" : absl::StrCat(last->get_name(), ": "), "unknown command \"",
                   absl::CHexEscape(*word), "\": expected one of ", absl::StrJoin(names, ", "),
                   nearest.has_value() ? absl::StrCat("; did you mean \"", *nearest, "\"?") : ""));
}

void HideOtherNames(CLI::App& app) { app.formatter(std::make_shared<Help>()); }

}  // namespace crossmesh
