#include "common/daemon/daemon_main.h"

#include "common/base/log.h"
#include "common/base/standard_output.h"
#include "common/base/version.h"
#include "common/daemon/configuration.h"
#include "common/daemon/daemon_health.h"
#include "common/daemon/descriptor_limit.h"
#include "common/daemon/manual_page.h"

#include <cstdlib>
#include <exception>
#include <iostream>
#include <sstream>
#include <string>

#include <absl/strings/cord.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/time/clock.h>

namespace crossmesh {
namespace {

constexpr absl::string_view kManual = "manual";
constexpr int kDaemonSection = 8;

class ManualAsked final : public CLI::Success {
 public:
  ManualAsked() : CLI::Success(std::string(kManual), "", CLI::ExitCodes::Success) {}
};

void Declare(CLI::App& app, DaemonFlags& flags) {
  app.set_version_flag("--version", VersionLine(app.get_name()), "Print the version and exit");
  // For packages: what the help says, as a page of the manual.
  app.add_flag_callback("--manual", [] { throw ManualAsked(); })->group("")->configurable(false);
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
  if (asked.get_name() == kManual) {
    text << ManualPage(app, kDaemonSection, VersionLine(app.get_name()));
  } else {
    app.exit(asked, text);
  }
  const absl::Status shown = WriteToStandardOutput(text.str());
  if (shown.ok()) return EXIT_SUCCESS;
  std::cerr << app.get_name() << ": error: " << shown.message() << "\n";
  return kExitFailure;
}

void Reload(Configuration& configuration, const DaemonFlags& flags) {
  const absl::Status status = configuration.Reload();
  flags.health->metrics.Reloaded(status.ok());
  if (!status.ok()) {
    LogError("config_not_reloaded", {{"status", status.ToString()}});
    return;
  }
  SetMinimumLogLevel(*ParseLogLevel(flags.log_level));
  flags.health->metrics.ConfigurationLoaded(configuration.Text(), absl::Now());
  LogInfo("config_reloaded", {{"log_level", flags.log_level}});
}

int Check(const Configuration& configuration, const absl::Status& status) {
  if (status.ok()) {
    const absl::Status shown = WriteToStandardOutput(configuration.Text());
    return shown.ok() ? EXIT_SUCCESS : kExitFailure;
  }
  std::cerr << "error: " << status.message() << "\n";
  return ExitCodeOf(status);
}

constexpr absl::string_view kExitCodeUrl = "crossmesh/exit_code";

}  // namespace

absl::Status WithExitCode(absl::Status error, int code) {
  if (!error.ok())
    error.SetPayload(kExitCodeUrl, absl::Cord(absl::string_view(absl::StrCat(code))));
  return error;
}

int ExitCodeOf(const absl::Status& status) {
  if (const auto text = status.GetPayload(kExitCodeUrl)) {
    int code = 0;
    if (absl::SimpleAtoi(std::string(*text), &code)) return code;
  }
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

int WaitUntilStopped(const StopSignals& signals, const DaemonFlags& flags, const EventFd* done) {
  int signal = signals.Wait(done);
  for (; signal == SIGHUP; signal = signals.Wait(done)) flags.reload();
  return signal;
}

int RunDaemon(CLI::App& app, int argc, const char* const* argv,
              absl::FunctionRef<absl::Status(const DaemonFlags&)> run) {
  DaemonFlags flags;
  Declare(app, flags);
  Configuration configuration(app, argc, argv, /*reloadable=*/{"log-level"});
  flags.reload = [&] { Reload(configuration, flags); };
  try {
    configuration.Parse();
    flags.only_check = configuration.only_check();
    if (flags.only_check) return Check(configuration, run(flags));
    SetMinimumLogLevel(*ParseLogLevel(flags.log_level));
    if (const absl::Status raised = RaiseDescriptorLimit(); !raised.ok()) {
      LogWarning("descriptor_limit_stays", {{"status", raised.ToString()}});
    }
    DaemonHealth health;
    health.metrics.ConfigurationLoaded(configuration.Text(), absl::Now());
    flags.health = &health;
    const absl::Status status = run(flags);
    health.probes.SetNotServing("has ended");
    if (!status.ok()) {
      // Without the details for programs, whose bytes are none for people.
      LogError("daemon_failed",
               {{"status", status.ToString(absl::StatusToStringMode::kWithNoExtraData)}});
    }
    return ExitCodeOf(status);
  } catch (const CLI::Success& asked) {
    return Show(app, asked);
  } catch (const CLI::ParseError& error) {
    const std::string explained = configuration.ExplainError(error);
    if (explained.empty()) {
      app.exit(error);
    } else {
      std::cerr << app.get_name() << ": error: " << explained << "\n";
    }
    return kExitUsage;
  } catch (const std::exception& error) {
    std::cerr << app.get_name() << ": error: " << error.what() << "\n";
    return kExitFailure;
  }
}

}  // namespace crossmesh
