// The daemon: one worker for a set of devices of this host.

#include "common/base/event_fd.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/base/unique_fd.h"
#include "common/mesh/mesh.h"
#include "worker/worker.h"

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

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
  WorkerOptions worker;
  std::string devices;
  std::string pages = "off";
  std::string shared_memory = "on";
  std::string ready_file;
  double drain_timeout_seconds = 60;
  std::string log_level = "info";
};

void Declare(CLI::App& app, Flags& flags) {
  const CLI::IsMember on_or_off({"on", "off"});
  app.add_option("--name", flags.worker.name, "Name of this worker, [a-z0-9._-]{1,63}")->required();
  app.add_option("--devices", flags.devices, "Its devices, e.g. node-a.0-3")->required();
  app.add_option("--controller", flags.worker.controllers,
                 "Address of the controller; repeat it for more than one")
      ->required();
  app.add_option("--listen", flags.worker.listen,
                 "Where the controller reaches it: HOST:PORT (port 0: any) or unix:/PATH")
      ->capture_default_str();
  app.add_option("--memory-socket", flags.worker.memory_socket,
                 "Unix socket at which user processes get its storages");
  app.add_option("--metrics-listen", flags.worker.metrics_listen,
                 "Loopback address for Prometheus, e.g. 127.0.0.1:0");
  app.add_flag("--insecure", flags.worker.insecure,
               "Allow addresses beyond this host, without encryption");
  app.add_option("--huge-pages", flags.pages, "Storages in huge pages")
      ->check(on_or_off)
      ->capture_default_str();
  app.add_option("--data-interface", flags.worker.data_interfaces,
                 "Network interface of the data plane; repeat it for more than one")
      ->capture_default_str();
  app.add_option("--shared-memory", flags.shared_memory,
                 "Read the memory of workers of this host directly")
      ->check(on_or_off)
      ->capture_default_str();
  app.add_option("--ready-file", flags.ready_file,
                 "Written when it serves: JSON with the addresses");
  app.add_option("--state-dir", flags.worker.state_folder,
                 "Folder in which it remembers the controller's epoch");
  app.add_option("--drain-timeout", flags.drain_timeout_seconds,
                 "Seconds for running tasks to end after SIGTERM")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--log-level", flags.log_level, "debug, info, warning or error")
      ->check(CLI::IsMember({"debug", "info", "warning", "error"}))
      ->capture_default_str();
}

int Fail(int code, const absl::Status& status) {
  LogError("worker_failed", {{"status", status.ToString()}});
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

// In place of what was there, whole or not at all.
absl::Status WriteReadyFile(const std::string& path, const Worker& worker,
                            const WorkerOptions& options) {
  const nlohmann::json ready = {{"name", worker.name()},
                                {"pid", getpid()},
                                {"devices", DevicesToString(options.devices)},
                                {"execution_address", worker.execution_address()},
                                {"memory_socket", options.memory_socket},
                                {"metrics_address", worker.metrics_address()}};
  const std::string next_path = path + ".next";
  std::ofstream file(next_path);
  file << ready.dump() << "\n";
  file.close();
  if (!file || std::rename(next_path.c_str(), path.c_str()) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("write ready file ", path));
  }
  return absl::OkStatus();
}

// Waits for a signal or for the end of a drain.
void WaitForEnd(const UniqueFd& signals, const EventFd& drained) {
  std::array<pollfd, 2> fds = {pollfd{.fd = signals.get(), .events = POLLIN},
                               pollfd{.fd = drained.fd(), .events = POLLIN}};
  while (poll(fds.data(), fds.size(), -1) < 0) {
  }
  if (fds[0].revents == 0) return;
  signalfd_siginfo info;
  if (read(signals.get(), &info, sizeof(info)) == sizeof(info)) {
    LogInfo("worker_stops", {{"signal", info.ssi_signo}});
  }
}

absl::Status Resolve(Flags& flags) {
  SetMinimumLogLevel(*ParseLogLevel(flags.log_level));
  ASSIGN_OR_RETURN(flags.worker.devices, ParseDevices(flags.devices));
  flags.worker.shared_memory = flags.shared_memory == "on";
  flags.worker.pages = flags.pages == "on" ? Arena::Pages::kHuge : Arena::Pages::kSmall;
  return absl::OkStatus();
}

int RunWorker(Flags flags) {
  if (const absl::Status status = Resolve(flags); !status.ok()) return Fail(kExitUsage, status);
  const absl::StatusOr<UniqueFd> signals = BlockSignals();
  if (!signals.ok()) return Fail(kExitFailure, signals.status());
  absl::StatusOr<EventFd> drained = EventFd::Create();
  if (!drained.ok()) return Fail(kExitFailure, drained.status());
  flags.worker.on_drained = [&drained] { drained->Signal(); };

  absl::StatusOr<std::unique_ptr<Worker>> worker = Worker::Create(flags.worker);
  if (!worker.ok()) return Fail(ExitCodeOf(worker.status()), worker.status());
  if (!flags.ready_file.empty()) {
    const absl::Status status = WriteReadyFile(flags.ready_file, **worker, flags.worker);
    if (!status.ok()) return Fail(kExitFailure, status);
  }
  WaitForEnd(*signals, *drained);
  // A second signal ends the process at once.
  sigset_t none;
  sigemptyset(&none);
  pthread_sigmask(SIG_SETMASK, &none, nullptr);
  (*worker)->Stop(absl::Seconds(flags.drain_timeout_seconds));
  return EXIT_SUCCESS;
}

}  // namespace
}  // namespace crossmesh

int main(int argc, char** argv) {
  CLI::App app("Crossmesh worker: holds tensors of a set of devices and moves them");
  app.name("crossmesh-worker");
  crossmesh::Flags flags;
  try {
    crossmesh::Declare(app, flags);
    app.parse(argc, argv);
    return crossmesh::RunWorker(std::move(flags));
  } catch (const CLI::ParseError& error) {
    // Asking for help is one of these as well.
    return app.exit(error) == 0 ? EXIT_SUCCESS : crossmesh::kExitUsage;
  } catch (const std::exception& error) {
    std::cerr << "crossmesh-worker: error: " << error.what() << "\n";
    return EXIT_FAILURE;
  }
}
