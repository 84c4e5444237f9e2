// Where tests find files of the repository, what these have, and the programs of this build.

#pragma once

#include <string>

#include <absl/strings/string_view.h>

namespace crossmesh {

// Absolute path of a file of the repository; `path` is relative to its root, e.g.
// "common/plan/testdata/relay.txt".
std::string SourcePath(absl::string_view path);

// Absolute path of a program of this build, e.g. ProgramPath("crossmesh-worker"). It need not
// exist.
std::string ProgramPath(absl::string_view name);

// What a file has; nothing where there is none.
std::string ReadTextFile(const std::string& path);

}  // namespace crossmesh
