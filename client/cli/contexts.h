#pragma once

#include <string>

#include <absl/container/btree_map.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// A controller under a name of its own.
struct ControllerContext {
  std::string controller;  // as --controller
  bool insecure = false;

  bool operator==(const ControllerContext&) const = default;
};

// The controllers that a person works with: what the command line's configuration file has. A table
// for each, and above them which one is meant where nothing else says so:
//
//   current = "lab"
//   [lab]
//   controller = "192.0.2.1:7400"
//   insecure = true
//
// Thread-compatible.
class Contexts {
 public:
  // "crossmesh/config.toml" in $XDG_CONFIG_HOME, else in ~/.config; empty without either.
  static std::string FilePath();
  // None, when there is no such file. InvalidArgument: an entry that is none of these, with its
  // line; a file that cannot be read.
  static absl::StatusOr<Contexts> Read(const std::string& path);
  // As Read; `file` is for errors.
  static absl::StatusOr<Contexts> Parse(const std::string& file, const std::string& text);

  const absl::btree_map<std::string, ControllerContext>& all() const { return all_; }
  const std::string& current() const { return current_; }  // empty: none

  // NotFound lists those that there are.
  absl::StatusOr<ControllerContext> Find(absl::string_view name) const;
  // InvalidArgument: no name, which is of [a-z0-9._-]{1,63}.
  absl::Status Set(const std::string& name, const ControllerContext& context);
  // As Find.
  absl::Status Use(const std::string& name);
  // The current one may go as well: then there is none. As Find.
  absl::Status Delete(const std::string& name);

  // What Parse reads.
  std::string ToText() const;
  // In the place of what the file had, whole or not at all; the system's error, naming `path`.
  absl::Status Write(const std::string& path) const;

 private:
  std::string current_;
  absl::btree_map<std::string, ControllerContext> all_;
};

}  // namespace crossmesh
