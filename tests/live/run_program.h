#pragma once

#include <string>

#include <absl/strings/string_view.h>

namespace crossmesh {

// A folder that goes when this does. Immutable.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string PathOf(absl::string_view file) const;

 private:
  std::string path_;
};

// How a program ended, and what it said.
struct ProgramResult {
  std::string exit_text;  // "exit status 0"
  std::string output;
  std::string errors;
};

// Runs a shell command to its end. Fails the test when that takes more than a minute.
ProgramResult RunProgram(const std::string& command);

// The command lines of all processes in which `text` occurs.
std::string ProcessesWith(absl::string_view text);

}  // namespace crossmesh
