#pragma once

#include <set>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <absl/container/btree_map.h>
#include <absl/status/status.h>

namespace crossmesh {

// A daemon's flags, from its command line and from the file that this names: TOML, in which a
// flag's name without dashes has its value. What the command line says goes before. A key that is
// no flag is an error. Thread-compatible.
class Configuration {
 public:
  // Adds --config and --check-config to the flags of `app`, which must outlive this, as must the
  // arguments. `reloadable`: names of flags that may change while the daemon runs.
  Configuration(CLI::App& app, int argc, const char* const* argv, std::set<std::string> reloadable);

  // Sets the variables that are bound to flags. Throws what CLI11 throws.
  void Parse();
  // A key of the file that is no flag, or a file that cannot be read, with file, line and key;
  // nothing when it is not the file's error.
  std::string ExplainError(const CLI::ParseError& error) const;
  // Whether the daemon is only to say whether its configuration is right.
  bool only_check() const { return only_check_; }
  // All flags with their values: TOML.
  std::string Text() const;

  // Reads everything again, all or nothing: OK when nothing has changed but what may change, and
  // its variables are set then. InvalidArgument: what Parse would throw; FailedPrecondition names a
  // flag that may not change, with both values. After an error only the next Reload may use the
  // variables, and a second one tells changes from what held before the first.
  absl::Status Reload();

 private:
  using Values = absl::btree_map<std::string, std::string>;  // by flag
  Values Effective() const;

  CLI::App& app_;
  const std::vector<const char*> arguments_;
  const std::set<std::string> reloadable_;
  bool only_check_ = false;
  Values held_;
};

}  // namespace crossmesh
