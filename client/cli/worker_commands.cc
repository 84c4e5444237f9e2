#include "client/cli/cli.h"
#include "client/cli/list_document.h"
#include "client/cli/options.h"
#include "client/cli/report_text.h"
#include "client/cli/worker_report.h"
#include "client/client.h"
#include "common/base/status_macros.h"
#include "common/base/table.h"

#include <memory>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

absl::Status List(Cli& cli) {
  ASSIGN_OR_RETURN(Client client, cli.Connect());
  ASSIGN_OR_RETURN(const std::vector<v1::Worker> workers, client.ListWorkers());
  TextTable table({"NAME", "STATE", "DEVICES", "GPUS>", "TASKS>", "MEMORY>", "TRANSPORT", "ADDRESS",
                   "VERSION"});
  for (const v1::Worker& worker : workers) {
    table.AddRow({worker.name(), StateName(worker.state()), worker.devices(),
                  absl::StrCat(worker.gpus_size()), absl::StrCat(worker.running_tasks()),
                  Bytes(worker.memory_bytes()), worker.transport(), worker.execution_address(),
                  worker.version()});
  }
  return cli.Answer(ListDocument("workers", workers), table.ToString());
}

absl::Status ListGpus(Cli& cli) {
  ASSIGN_OR_RETURN(Client client, cli.Connect());
  ASSIGN_OR_RETURN(const std::vector<v1::Worker> workers, client.ListWorkers());
  return cli.Answer(ListDocument("workers", workers), GpusText(workers));
}

absl::Status Drain(Cli& cli, const std::string& name) {
  ASSIGN_OR_RETURN(Client client, cli.Connect());
  RETURN_IF_ERROR(client.DrainWorker(name));
  return cli.Answer(
      {{"draining", name}},
      absl::StrCat("worker ", name, " gets no new work, and leaves when it is idle\n"));
}

absl::Status Forget(Cli& cli, const std::string& name) {
  ASSIGN_OR_RETURN(Client client, cli.Connect());
  RETURN_IF_ERROR(client.ForgetWorker(name));
  return cli.Answer({{"forgotten", name}}, absl::StrCat("worker ", name, " is off the list\n"));
}

}  // namespace

void AddWorkerCommands(Cli& cli, CLI::App& app) {
  CLI::App& group = cli.AddGroup(app, "worker", "Shows, drains and forgets workers");
  CLI::App& list = cli.AddCommand(group, "list", "Lists all workers by name",
                                  "  crossmesh worker list --controller 127.0.0.1:7400\n");
  cli.Run(list, [&cli] { return List(cli); });

  CLI::App& gpus = cli.AddCommand(
      group, "gpus", "Lists the GPUs of all workers, as their hosts and processes tell of them",
      "  crossmesh worker gpus\n"
      "crossmesh network describe makes a network file of it.\n");
  cli.Run(gpus, [&cli] { return ListGpus(cli); });

  CLI::App& drain =
      cli.AddCommand(group, "drain", "Gives a worker no new work; it leaves when idle",
                     "  crossmesh worker drain node-a\n");
  const auto name = std::make_shared<std::string>();
  AddOption(drain, "name", *name, "Name").Required();
  cli.Run(drain, [&cli, name] { return Drain(cli, *name); });

  CLI::App& forget = cli.AddCommand(group, "forget", "Takes a lost worker off the list",
                                    "  crossmesh worker forget node-a\n");
  AddOption(forget, "name", *name, "Name").Required();
  cli.Run(forget, [&cli, name] { return Forget(cli, *name); });

  for (CLI::App* command : {&list, &gpus, &drain, &forget}) cli.AddControllerFlags(*command);
}

}  // namespace crossmesh
