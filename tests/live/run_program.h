#pragma once

#include <string>

#include <absl/strings/string_view.h>

namespace crossmesh {

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
