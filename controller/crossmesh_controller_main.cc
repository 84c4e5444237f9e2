// The daemon: the controller of a cluster.

#include "common/base/error_place.h"
#include "common/base/freed_memory.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/daemon/daemon_main.h"
#include "common/daemon/ready_file.h"
#include "common/daemon/service_manager.h"
#include "common/daemon/stop_signals.h"
#include "common/mesh/topology_file.h"
#include "controller/controller.h"

#include <fstream>
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

namespace crossmesh {
namespace {

struct Flags {
  Controller::Options controller;
  std::string topology_file;
  double shutdown_seconds = 10;
};

void Declare(CLI::App& app, Flags& flags) {
  app.add_option("--listen", flags.controller.listen,
                 "Where it serves: HOST:PORT (port 0: any) or unix:/PATH; repeat it for more")
      ->required();
  app.add_option("--metrics-listen", flags.controller.metrics_listen,
                 "Where Prometheus scrapes, e.g. 127.0.0.1:9400")
      ->capture_default_str();
  app.add_flag("--insecure", flags.controller.insecure,
               "Allow addresses beyond this host, without encryption");
  app.add_option("--topology", flags.topology_file,
                 "JSON file that describes hosts, NICs and racks");
  app.add_option("--shutdown-timeout", flags.shutdown_seconds,
                 "Seconds for running operations to end after SIGTERM")
      ->check(CLI::Range(0.0, 3600.0))
      ->capture_default_str();
}

absl::Status ReadTopology(Flags& flags) {
  if (flags.topology_file.empty()) return absl::OkStatus();
  std::ifstream file(flags.topology_file);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) {
    return absl::InvalidArgumentError(absl::StrCat("cannot read ", flags.topology_file));
  }
  ASSIGN_OR_RETURN(flags.controller.topology,
                   At(flags.topology_file, ParseTopologyFile(text.str())));
  return absl::OkStatus();
}

absl::Status RunController(Flags flags, const DaemonFlags& daemon) {
  RETURN_IF_ERROR(ReadTopology(flags));
  ASSIGN_OR_RETURN(const StopSignals signals, StopSignals::Block());
  ASSIGN_OR_RETURN(ReadyFile ready, ReadyFile::Claim(daemon.ready_file));
  ASSIGN_OR_RETURN(const std::unique_ptr<Controller> controller,
                   Controller::Create(flags.controller));
  for (const std::string& address : controller->addresses()) {
    LogInfo("controller_serves", {{"address", address},
                                  {"metrics_address", controller->metrics_address()},
                                  {"epoch", controller->epoch()}});
  }
  RETURN_IF_ERROR(ready.Write({{"addresses", controller->addresses()},
                               {"metrics_address", controller->metrics_address()},
                               {"epoch", controller->epoch()}}));
  RETURN_IF_ERROR(TellServiceManager("READY=1"));
  LogInfo("controller_stops", {{"signal", signals.Wait()}});
  return StopUnlessInsisted(signals,
                            [&] { controller->Shutdown(absl::Seconds(flags.shutdown_seconds)); });
}

}  // namespace
}  // namespace crossmesh

int main(int argc, char** argv) {
  crossmesh::KeepFreedMemory();  // it plans whenever a trainer has new weights
  CLI::App app("Crossmesh controller: holds the cluster's metadata, plans, and runs operations",
               "crossmesh-controller");
  crossmesh::Flags flags;
  crossmesh::Declare(app, flags);
  return crossmesh::RunDaemon(app, argc, argv, [&flags](const crossmesh::DaemonFlags& daemon) {
    return crossmesh::RunController(std::move(flags), daemon);
  });
}
