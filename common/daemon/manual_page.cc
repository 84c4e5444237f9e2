#include "common/daemon/manual_page.h"

#include <vector>

#include <CLI/CLI.hpp>
#include <absl/strings/ascii.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_split.h>
#include <absl/strings/strip.h>

namespace crossmesh {
namespace {

// What roff would take for its own.
std::string Escaped(absl::string_view text) {
  std::string out;
  for (const char letter : text) {
    if (letter == '\\') {
      out += "\\e";
    } else if (letter == '-') {
      out += "\\-";
    } else if ((letter == '.' || letter == '\'') && (out.empty() || out.back() == '\n')) {
      out += "\\&";
      out += letter;
    } else {
      out += letter;
    }
  }
  return out;
}

// "-o, --output json|table": an option with what it takes.
std::string Heading(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  if (names.empty()) names.push_back(option.get_name(/*positional=*/true));
  std::string heading = absl::StrCat("\\fB", Escaped(absl::StrJoin(names, ", ")), "\\fR");
  const std::string type = option.get_type_name();
  if (option.get_type_size() > 0 && !type.empty()) {
    absl::StrAppend(&heading, " \\fI", Escaped(type), "\\fR");
  }
  if (!option.get_default_str().empty()) {
    absl::StrAppend(&heading, " (", Escaped(option.get_default_str()), ")");
  }
  return heading;
}

void AppendOptions(const CLI::App& app, std::string& page) {
  for (const CLI::Option* option : app.get_options({})) {
    if (option->get_group().empty()) continue;  // hidden
    absl::StrAppend(&page, ".TP\n", Heading(*option), "\n", Escaped(option->get_description()),
                    "\n");
  }
}

std::string Lines(absl::string_view text) {
  return absl::StrCat(".nf\n", Escaped(absl::StripTrailingAsciiWhitespace(text)), "\n.fi\n");
}

std::string PathOf(const CLI::App& app) {
  const CLI::App* const parent = app.get_parent();
  return parent == nullptr ? app.get_name() : absl::StrCat(PathOf(*parent), " ", app.get_name());
}

void AppendCommands(const CLI::App& app, std::string& page) {
  for (const CLI::App* command : app.get_subcommands({})) {
    if (command->get_group().empty()) continue;
    absl::StrAppend(&page, ".SS ", Escaped(PathOf(*command)), "\n",
                    Escaped(command->get_description()), "\n");
    AppendOptions(*command, page);
    const bool is_group = !command->get_subcommands({}).empty();
    if (!is_group && !command->get_footer().empty()) {
      absl::StrAppend(&page, ".PP\n", Lines(command->get_footer()));
    }
    AppendCommands(*command, page);
  }
}

}  // namespace

std::string ManualPage(const CLI::App& app, int section, absl::string_view version) {
  const std::string& name = app.get_name();
  std::string page =
      absl::StrCat(".TH ", absl::AsciiStrToUpper(name), " ", section, " \"\" \"", version,
                   "\"\n.SH NAME\n", Escaped(name), " \\- ", Escaped(app.get_description()),
                   "\n.SH SYNOPSIS\n.B ", Escaped(name), "\n[\\fIOPTIONS\\fR]",
                   app.get_subcommands({}).empty() ? "" : " \\fICOMMAND\\fR", "\n.SH OPTIONS\n");
  AppendOptions(app, page);
  if (!app.get_subcommands({}).empty()) {
    absl::StrAppend(&page, ".SH COMMANDS\n");
    AppendCommands(app, page);
  }
  if (!app.get_footer().empty()) {
    absl::StrAppend(&page, ".SH NOTES\n", Lines(app.get_footer()));
  }
  return page;
}

}  // namespace crossmesh
