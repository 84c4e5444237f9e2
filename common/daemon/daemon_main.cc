#include "common/daemon/daemon_main.h"

#include "common/base/log.h"
#include "common/base/standard_output.h"
#include "common/base/version.h"
#include "common/daemon/descriptor_limit.h"

#include <cstdlib>
#include <exception>
#include <iostream>
#include <sstream>

namespace crossmesh {
namespace {

void Declare(CLI::App& app, DaemonFlags& flags) {
  app.set_version_flag("--version", VersionLine(app.get_name()), "Print the version and exit");
  app.add_option("--ready-file", flags.ready_file,
                 "Written when it serves: JSON with the addresses; removed when it stops");
  app.add_option("--log-level", flags.log_level, "debug, info, warning or error")
      ->check(CLI::IsMember({"debug", "info", "warning", "error"}))
      ->capture_default_str();
}

// Help, or the version. What was to be printed and was not is a failure: a script would go on with
// half of it.
int Show(const CLI::App& app, const CLI::Success& asked) {
  std::ostringstream text;
  app.exit(asked, text);
  const absl::Status shown = WriteToStandardOutput(text.str());
  if (shown.ok()) return EXIT_SUCCESS;
  std::cerr << app.get_name() << ": error: " << shown.message() << "\n";
  return kExitFailure;
}

}  // namespace

int ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return EXIT_SUCCESS;
    case absl::StatusCode::kInvalidArgument:
      return kExitUsage;
    case absl::StatusCode::kFailedPrecondition:
      return kExitAddressInUse;
    case absl::StatusCode::kAlreadyExists:
      return kExitNameTaken;
    default:
      return kExitFailure;
  }
}

int RunDaemon(CLI::App& app, int argc, const char* const* argv,
              absl::FunctionRef<absl::Status(const DaemonFlags&)> run) {
  DaemonFlags flags;
  try {
    Declare(app, flags);
    app.parse(argc, argv);
    SetMinimumLogLevel(*ParseLogLevel(flags.log_level));
    if (const absl::Status raised = RaiseDescriptorLimit(); !raised.ok()) {
      LogWarning("descriptor_limit_stays", {{"status", raised.ToString()}});
    }
    const absl::Status status = run(flags);
    if (!status.ok()) {
      // Without the details for programs, whose bytes are none for people.
      LogError("daemon_failed",
               {{"status", status.ToString(absl::StatusToStringMode::kWithNoExtraData)}});
    }
    return ExitCodeOf(status);
  } catch (const CLI::Success& asked) {
    return Show(app, asked);
  } catch (const CLI::ParseError& error) {
    app.exit(error);
    return kExitUsage;
  } catch (const std::exception& error) {
    std::cerr << app.get_name() << ": error: " << error.what() << "\n";
    return kExitFailure;
  }
}

}  // namespace crossmesh
