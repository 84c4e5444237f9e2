#include "common/daemon/configuration.h"

#include <fstream>
#include <utility>

#include <absl/strings/ascii.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <absl/strings/strip.h>

namespace crossmesh {
namespace {

// "listen = [...]" sets "listen".
absl::string_view KeyOf(absl::string_view line) {
  const size_t equals = line.find('=');
  if (equals == absl::string_view::npos) return "";
  return absl::StripAsciiWhitespace(line.substr(0, equals));
}

// From 1; 0: there is none.
int LineOfKey(const std::string& path, absl::string_view key) {
  std::ifstream file(path);
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    if (KeyOf(line) == key) return number;
  }
  return 0;
}

}  // namespace

Configuration::Configuration(CLI::App& app, int argc, const char* const* argv,
                             std::set<std::string> reloadable)
    : app_(app), arguments_(argv, argv + argc), reloadable_(std::move(reloadable)) {
  app_.set_config("--config", "",
                  "TOML file with any of these flags, e.g. log-level = \"debug\"; the command line "
                  "goes before it; read again at SIGHUP")
      ->configurable(false);
  app_.allow_config_extras(CLI::config_extras_mode::error);
  app_.add_flag("--check-config", only_check_,
                "Print all flags with their values if they are right, and exit")
      ->configurable(false);
}

void Configuration::Parse() {
  app_.clear();
  app_.parse(static_cast<int>(arguments_.size()), arguments_.data());
  held_ = Effective();
}

std::string Configuration::ExplainError(const CLI::ParseError& error) const {
  const std::vector<std::string> files = app_.get_config_ptr()->results();
  absl::string_view key = error.what();
  if (files.empty() || dynamic_cast<const CLI::ConfigError*>(&error) == nullptr) return "";
  // As CLI11 says it.
  if (!absl::ConsumePrefix(&key, "INI was not able to parse ")) {
    key = absl::StripSuffix(key, ": This option is not allowed in a configuration file");
  }
  key = absl::StripPrefix(key, "--");
  return absl::StrCat(files.back(), ":", LineOfKey(files.back(), key), ": expected a flag of ",
                      app_.get_name(), " that a file may set, found \"", key, "\"");
}

std::string Configuration::Text() const { return app_.config_to_str(/*default_also=*/true); }

Configuration::Values Configuration::Effective() const {
  Values values;
  const std::string text = Text();
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    const absl::string_view key = KeyOf(line);
    if (!key.empty()) values[key] = std::string(line.substr(line.find('=') + 1));
  }
  return values;
}

absl::Status Configuration::Reload() {
  const Values before = held_;
  try {
    Parse();
  } catch (const CLI::ParseError& error) {
    held_ = before;
    const std::string explained = ExplainError(error);
    return absl::InvalidArgumentError(explained.empty() ? error.what() : explained);
  }
  for (const auto& [flag, value] : std::exchange(held_, before)) {
    const auto known = before.find(flag);
    const std::string was = known == before.end() ? "nothing" : known->second;
    if (value == was || reloadable_.contains(flag)) continue;
    return absl::FailedPreconditionError(
        absl::StrCat(flag, ": expected ", was, " as long as this runs, found ", value));
  }
  held_ = Effective();
  return absl::OkStatus();
}

}  // namespace crossmesh
