// The daemon: the controller of a cluster.

#include "common/base/event_fd.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/base/thread.h"
#include "common/base/unique_fd.h"
#include "common/mesh/topology_file.h"
#include "controller/controller.h"

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>

#include <CLI/CLI.hpp>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>
#include <absl/time/time.h>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

namespace crossmesh {
namespace {

// As in sysexits.h where that has a meaning for it.
constexpr int kExitUsage = 64;
constexpr int kExitFailure = 70;
constexpr int kExitAddressInUse = 75;

struct Flags {
  Controller::Options controller;
  std::string ready_file;
  std::string topology_file;
  std::string log_level = "info";
  double shutdown_seconds = 10;
};

void Declare(CLI::App& app, Flags& flags) {
  app.add_option("--listen", flags.controller.listen,
                 "Where it serves: HOST:PORT (port 0: any) or unix:/PATH; repeat it for more")
      ->required();
  app.add_option("--metrics-listen", flags.controller.metrics_listen,
                 "Loopback address for Prometheus")
      ->capture_default_str();
  app.add_flag("--insecure", flags.controller.insecure,
               "Allow addresses beyond this host, without encryption");
  app.add_option("--ready-file", flags.ready_file,
                 "Written when it serves: JSON with the addresses; removed when it stops");
  app.add_option("--topology", flags.topology_file,
                 "JSON file that describes hosts, NICs and racks");
  app.add_option("--shutdown-timeout", flags.shutdown_seconds,
                 "Seconds for running operations to end after SIGTERM")
      ->check(CLI::Range(0.0, 3600.0))
      ->capture_default_str();
  app.add_option("--log-level", flags.log_level, "debug, info, warning or error")
      ->check(CLI::IsMember({"debug", "info", "warning", "error"}))
      ->capture_default_str();
}

int Fail(int code, const absl::Status& status) {
  LogError("controller_failed", {{"status", status.ToString()}});
  return code;
}

int ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
      return kExitUsage;
    case absl::StatusCode::kFailedPrecondition:
      return kExitAddressInUse;
    default:
      return kExitFailure;
  }
}

// In all threads that are started from here on, so that only the descriptor has them.
absl::StatusOr<UniqueFd> BlockSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  UniqueFd fd;
  if (pthread_sigmask(SIG_BLOCK, &signals, nullptr) == 0) {
    fd.Reset(signalfd(-1, &signals, SFD_CLOEXEC));
  }
  if (!fd.valid()) return absl::ErrnoToStatus(errno, "signalfd");
  return fd;
}

absl::Status ReadTopology(Flags& flags) {
  if (flags.topology_file.empty()) return absl::OkStatus();
  std::ifstream file(flags.topology_file);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) {
    return absl::InvalidArgumentError(absl::StrCat("cannot read ", flags.topology_file));
  }
  absl::StatusOr<Topology> topology = ParseTopologyFile(text.str());
  if (!topology.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(flags.topology_file, ": ", topology.status().message()));
  }
  flags.controller.topology = *std::move(topology);
  return absl::OkStatus();
}

// In place of what was there, whole or not at all.
absl::Status WriteReadyFile(const std::string& path, const Controller& controller) {
  const nlohmann::json ready = {{"pid", getpid()},
                                {"addresses", controller.addresses()},
                                {"metrics_address", controller.metrics_address()},
                                {"epoch", controller.epoch()}};
  const std::string next_path = path + ".next";
  std::ofstream file(next_path);
  file << ready.dump() << "\n";
  file.close();
  if (!file || std::rename(next_path.c_str(), path.c_str()) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("write ready file ", path));
  }
  return absl::OkStatus();
}

// The signal that came; 0 when `done` came first.
int WaitForSignal(const UniqueFd& signals, const EventFd* done) {
  std::array<pollfd, 2> fds = {pollfd{.fd = signals.get(), .events = POLLIN},
                               pollfd{.fd = done == nullptr ? -1 : done->fd(), .events = POLLIN}};
  while (poll(fds.data(), fds.size(), -1) < 0) {
  }
  if (fds[0].revents == 0) return 0;
  signalfd_siginfo info;
  if (read(signals.get(), &info, sizeof(info)) != sizeof(info)) return SIGTERM;
  return static_cast<int>(info.ssi_signo);
}

// Until a signal; then gracefully, unless another one comes.
absl::Status ServeUntilSignal(Controller& controller, const UniqueFd& signals,
                              absl::Duration shutdown_time) {
  ASSIGN_OR_RETURN(EventFd done, EventFd::Create());
  const int signal = WaitForSignal(signals, nullptr);
  LogInfo("controller_stops", {{"signal", signal}});
  const Thread shutdown("shutdown", [&controller, &done, shutdown_time] {
    controller.Shutdown(shutdown_time);
    done.Signal();
  });
  if (const int second = WaitForSignal(signals, &done); second != 0) {
    LogWarning("controller_stops_at_once", {{"signal", second}});
    std::_Exit(128 + second);
  }
  return absl::OkStatus();
}

int RunController(Flags flags) {
  SetMinimumLogLevel(*ParseLogLevel(flags.log_level));
  flags.controller.version = CROSSMESH_VERSION;
  if (const absl::Status status = ReadTopology(flags); !status.ok()) {
    return Fail(kExitUsage, status);
  }
  const absl::StatusOr<UniqueFd> signals = BlockSignals();
  if (!signals.ok()) return Fail(kExitFailure, signals.status());
  const absl::StatusOr<std::unique_ptr<Controller>> controller =
      Controller::Create(flags.controller);
  if (!controller.ok()) return Fail(ExitCodeOf(controller.status()), controller.status());
  for (const std::string& address : (*controller)->addresses()) {
    LogInfo("controller_serves", {{"address", address},
                                  {"metrics_address", (*controller)->metrics_address()},
                                  {"epoch", (*controller)->epoch()}});
  }
  absl::Status status;
  if (!flags.ready_file.empty()) status = WriteReadyFile(flags.ready_file, **controller);
  if (status.ok()) {
    status = ServeUntilSignal(**controller, *signals, absl::Seconds(flags.shutdown_seconds));
  }
  if (!flags.ready_file.empty()) unlink(flags.ready_file.c_str());
  return status.ok() ? EXIT_SUCCESS : Fail(kExitFailure, status);
}

}  // namespace
}  // namespace crossmesh

int main(int argc, char** argv) {
  try {
    CLI::App app("Crossmesh controller: holds the cluster's metadata, plans, and runs operations");
    app.name("crossmesh-controller");
    crossmesh::Flags flags;
    crossmesh::Declare(app, flags);
    CLI11_PARSE(app, argc, argv);
    return crossmesh::RunController(std::move(flags));
  } catch (const std::exception& error) {
    std::cerr << "crossmesh-controller: error: " << error.what() << "\n";
    return EXIT_FAILURE;
  }
}
