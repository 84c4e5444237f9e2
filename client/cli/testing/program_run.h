// Runs the program in tests, as a user does.

#pragma once

#include <string>

namespace crossmesh {

struct ProgramResult {
  int exit_status = -1;
  std::string out;
  std::string error;
};

// What a shell makes of `command` in the repository's root, with no standard input. $CROSSMESH is
// the program, and no controller is in the environment.
ProgramResult RunShell(const std::string& command);

// The program with `arguments`, as a shell takes them.
ProgramResult Crossmesh(const std::string& arguments);

std::string ReadAll(const std::string& path);

// Compares with the file of that name in testdata. UPDATE_GOLDEN=1 in the environment rewrites it
// instead.
void ExpectGolden(const std::string& name, const std::string& text);

}  // namespace crossmesh
