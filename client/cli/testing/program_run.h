// Runs the program in tests, as a user does.

#pragma once

#include <string>

#include <absl/time/time.h>
#include <nlohmann/json_fwd.hpp>

namespace crossmesh {

struct ProgramResult {
  int exit_status = -1;  // -1: it was killed
  std::string out;
  std::string error;
};

// What a shell makes of `command` in the repository's root, with no standard input. $CROSSMESH is
// the program; no controller is in the environment, and no configuration file. After `limit` what
// still runs is killed, and the test fails with the command and what it printed.
ProgramResult RunShell(const std::string& command, absl::Duration limit = absl::Minutes(1));

// The program with `arguments`, as a shell takes them.
ProgramResult Crossmesh(const std::string& arguments);

// What it writes as JSON, where it must succeed.
nlohmann::json DocumentOf(const std::string& arguments);

// What it writes to standard error, where it must fail and write nothing else.
std::string ErrorOf(const std::string& arguments);

std::string ReadAll(const std::string& path);

// Compares with the file of that name in testdata. UPDATE_GOLDEN=1 in the environment rewrites it
// instead.
void ExpectGolden(const std::string& name, const std::string& text);

}  // namespace crossmesh
