#include "client/cli/command_line.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <numeric>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
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

std::vector<std::string> CommandsOf(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  return names;
}

std::vector<std::string> FlagsOf(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options({})) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

// The first group or command that was given something unknown, else the last one that was given.
const CLI::App& Last(const CLI::App& app) {
  const CLI::App* last = &app;
  while (last->remaining().empty() && !last->get_subcommands().empty()) {
    last = last->get_subcommands().front();
  }
  return *last;
}

// The first word that it does not know, without the value that a flag has; empty: there is none.
// What follows a flag may be its value.
std::string Unknown(const CLI::App& app) {
  const std::vector<std::string> unknown = app.remaining();
  return unknown.empty() ? "" : unknown.front().substr(0, unknown.front().find('='));
}

bool IsFlag(absl::string_view word) { return absl::StartsWith(word, "-"); }

absl::Status Refuse(const CLI::App& last, absl::string_view what,
                    const std::optional<std::string>& nearest) {
  return absl::InvalidArgumentError(
      absl::StrCat(last.get_parent() == nullptr ? "" : absl::StrCat(last.get_name(), ": "), what,
                   nearest.has_value() ? absl::StrCat("; did you mean \"", *nearest, "\"?") : ""));
}

}  // namespace

absl::Status CheckCommandNames(const CLI::App& app) {
  const CLI::App& last = Last(app);
  const std::string word = Unknown(last);
  const std::vector<std::string> names = CommandsOf(last);
  if (word.empty() || IsFlag(word) || names.empty()) return absl::OkStatus();
  return Refuse(last,
                absl::StrCat("unknown command \"", absl::CHexEscape(word), "\": expected one of ",
                             absl::StrJoin(names, ", ")),
                Nearest(word, names));
}

absl::Status CheckFlagNames(const CLI::App& app) {
  const CLI::App& last = Last(app);
  const std::string word = Unknown(last);
  if (!IsFlag(word)) return absl::OkStatus();
  return Refuse(last, absl::StrCat("unknown flag \"", absl::CHexEscape(word), "\""),
                Nearest(word, FlagsOf(last)));
}

void HideOtherNames(CLI::App& app) { app.formatter(std::make_shared<Help>()); }

}  // namespace crossmesh
