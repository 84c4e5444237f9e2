#pragma once

#include "common/base/event_fd.h"
#include "common/daemon/stop_signals.h"

#include <functional>
#include <string>

#include <CLI/CLI.hpp>
#include <absl/functional/function_ref.h>
#include <absl/status/status.h>

namespace crossmesh {

// As in sysexits.h where that has a meaning for it.
inline constexpr int kExitUsage = 64;
inline constexpr int kExitStateDamaged = 65;
inline constexpr int kExitFailure = 70;
inline constexpr int kExitStateLocked = 73;
inline constexpr int kExitStateFull = 74;
inline constexpr int kExitAddressInUse = 75;
inline constexpr int kExitNameTaken = 76;
inline constexpr int kExitStateUnusable = 77;
inline constexpr int kExitStateTooNew = 78;

class DaemonHealth;

// What a daemon exits with when it ends with this status: what WithExitCode has said, else
// InvalidArgument is of its flags, FailedPrecondition of an address that is taken, AlreadyExists of
// a name that is.
int ExitCodeOf(const absl::Status& status);

// The error, for which a daemon exits with this code.
absl::Status WithExitCode(absl::Status error, int code);

// The flags that every daemon has.
struct DaemonFlags {
  std::string ready_file;  // empty: none
  std::string log_level = "info";
  // Only whether all flags are right is asked: the daemon looks at them, and is done.
  bool only_check = false;
  // What is watched of it, and served; it outlives what the daemon is made of. Null when only the
  // flags are asked for.
  DaemonHealth* health = nullptr;
  // Reads the configuration again, all or nothing, and logs and counts what came of it.
  std::function<void()> reload;
};

// Waits for a signal that asks the daemon to stop, and reloads meanwhile whenever SIGHUP comes. As
// StopSignals::Wait.
int WaitUntilStopped(const StopSignals& signals, const DaemonFlags& flags,
                     const EventFd* done = nullptr);

// The whole of a daemon's main: adds the flags above to those of `app`, and those of Configuration,
// parses, calls `run`, logs its error, and returns the exit code.
int RunDaemon(CLI::App& app, int argc, const char* const* argv,
              absl::FunctionRef<absl::Status(const DaemonFlags&)> run);

}  // namespace crossmesh
