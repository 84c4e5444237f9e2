#include "client/cli/cli.h"
#include "client/cli/options.h"
#include "client/client.h"
#include "client/doctor/host_checks.h"
#include "client/doctor/link_check.h"
#include "common/base/byte_count.h"
#include "common/base/status_macros.h"
#include "common/base/table.h"
#include "common/host_devices/host_devices.h"
#include "common/mesh/topology_file.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

struct DoctorFlags {
  std::string network;  // prints the description of this host, under this name
  std::string listen;
  std::string nccl_library = "libnccl.so.2";
  std::string m2n_library = "libnccl_m2n.so";
  int64_t memory_bytes = 0;
};

// What the controller says of its workers.
absl::StatusOr<HostCheck> CheckWorkers(Client& client) {
  ASSIGN_OR_RETURN(const std::vector<v1::Worker> workers, client.ListWorkers());
  const auto ready = std::ranges::count(workers, v1::WORKER_STATE_READY, &v1::Worker::state);
  const bool all = ready == std::ssize(workers);
  return HostCheck{.name = "workers",
                   .state = all ? HostCheck::State::kGood : HostCheck::State::kProblem,
                   .found = absl::StrCat(ready, " of ", workers.size(), " ready"),
                   .advice = all ? "" : "crossmesh worker list"};
}

std::string ProgramFolder() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
}

absl::Status PrintNetwork(Cli& cli, const DoctorFlags& flags) {
  ASSIGN_OR_RETURN(Host host, DescribeHost(ReadSystemDevices("/", kNvmlLibrary), flags.network));
  std::vector<Host> hosts;
  hosts.push_back(std::move(host));
  ASSIGN_OR_RETURN(const Topology topology, Topology::Create(std::move(hosts), {}));
  cli.Print(ToTopologyFile(topology));
  return absl::OkStatus();
}

absl::Status Examine(Cli& cli, const DoctorFlags& flags) {
  std::vector<HostCheck> checks = CheckHost({.nvml = kNvmlLibrary,
                                             .nccl = flags.nccl_library,
                                             .m2n = flags.m2n_library,
                                             .programs = ProgramFolder(),
                                             .listen = flags.listen,
                                             .memory_bytes = flags.memory_bytes});
  if (cli.has_controller()) {
    ASSIGN_OR_RETURN(Client client, cli.Connect());
    ASSIGN_OR_RETURN(checks.emplace_back(), CheckWorkers(client));
    checks.push_back(CheckLinks(client.MeasureNetwork(ShortProbe(), [](const auto&) {})));
  }
  nlohmann::json document = {{"checks", nlohmann::json::array()}};
  TextTable table({"CHECK", "STATE", "FOUND"});
  std::string advice;
  for (const HostCheck& check : checks) {
    const std::string state(StateName(check.state));
    document["checks"].push_back(
        {{"name", check.name}, {"state", state}, {"found", check.found}, {"advice", check.advice}});
    table.AddRow({check.name, state, check.found});
    if (!check.advice.empty()) absl::StrAppend(&advice, check.name, ": ", check.advice, "\n");
  }
  RETURN_IF_ERROR(
      cli.Answer(document, absl::StrCat(table.ToString(), advice.empty() ? "" : "\n", advice)));
  const auto problems = std::ranges::count(checks, HostCheck::State::kProblem, &HostCheck::state);
  if (problems == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(problems, " of ", checks.size(), " checks found a problem"));
}

}  // namespace

void AddDoctorCommand(Cli& cli, CLI::App& app) {
  CLI::App& command =
      cli.AddCommand(app, "doctor", "Checks whether this host has what Crossmesh needs",
                     "  crossmesh doctor\n"
                     "  crossmesh doctor --memory-bytes 68719476736 --listen 10.0.0.5:7400\n"
                     "  crossmesh doctor --network node-a > node-a.json\n"
                     "  crossmesh doctor --controller 10.0.0.5:7400 --insecure\n"
                     "With a controller it also sends a little over the links between workers.\n");
  const auto flags = std::make_shared<DoctorFlags>();
  AddOption(command, "--listen", flags->listen, "Address that a daemon is to have: HOST:PORT");
  AddOption(command, "--network", flags->network,
            "Print this host's part of a network file instead, under this name");
  AddOption(command, "--memory-bytes", flags->memory_bytes, "That a worker's storages are to have")
      .NotNegative();
  AddOption(command, "--nccl-library", flags->nccl_library, "As crossmesh-worker has it")
      .ShowDefault();
  AddOption(command, "--m2n-library", flags->m2n_library, "As crossmesh-worker has it")
      .ShowDefault();
  cli.AddControllerFlags(command);
  cli.Run(command, [&cli, flags] {
    return flags->network.empty() ? Examine(cli, *flags) : PrintNetwork(cli, *flags);
  });
}

}  // namespace crossmesh
