#pragma once

#include <string>

#include <CLI/CLI.hpp>
#include <absl/functional/function_ref.h>
#include <absl/status/status.h>

namespace crossmesh {

// As in sysexits.h where that has a meaning for it.
inline constexpr int kExitUsage = 64;
inline constexpr int kExitFailure = 70;
inline constexpr int kExitAddressInUse = 75;
inline constexpr int kExitNameTaken = 76;

// What a daemon exits with when it ends with this status: InvalidArgument is of its flags,
// FailedPrecondition of an address that is taken, AlreadyExists of a name that is.
int ExitCodeOf(const absl::Status& status);

// The flags that every daemon has.
struct DaemonFlags {
  std::string ready_file;  // empty: none
  std::string log_level = "info";
};

// The whole of a daemon's main: adds the flags above to those of `app`, parses, calls `run`, logs
// its error, and returns the exit code.
int RunDaemon(CLI::App& app, int argc, const char* const* argv,
              absl::FunctionRef<absl::Status(const DaemonFlags&)> run);

}  // namespace crossmesh
