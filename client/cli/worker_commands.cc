#include "client/cli/cli.h"
#include "client/cli/listing.h"
#include "client/cli/options.h"
#include "client/cli/report_text.h"
#include "client/cli/worker_report.h"
#include "client/client.h"
#include "common/base/status_macros.h"

#include <memory>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

absl::StatusOr<Listing> ListingOf(const Cli& cli, Client& client) {
  ASSIGN_OR_RETURN(std::vector<v1::Worker> workers, client.ListWorkers());
  Listing listing(cli, "worker", "workers",
                  {"NAME", "STATE", "DEVICES", "GPUS>", "TASKS>", "MEMORY>", "TRANSPORT", "ADDRESS",
                   "VERSION", "PROBLEM"});
  for (const v1::Worker& worker : workers) {
    listing.Add(worker.name(),
                {worker.name(), StateName(worker.state()), worker.devices(),
                 absl::StrCat(worker.gpus_size()), absl::StrCat(worker.running_tasks()),
                 Bytes(worker.memory_bytes()), worker.transport(), worker.execution_address(),
                 worker.version(), worker.problem()},
                worker);
  }
  return listing;
}

absl::Status List(Cli& cli, bool watch) {
  ASSIGN_OR_RETURN(Client client, cli.Connect());
  if (watch) return WatchListing(cli, {.list = [&] { return ListingOf(cli, client); }});
  ASSIGN_OR_RETURN(const Listing listing, ListingOf(cli, client));
  return AnswerListing(cli, listing);
}

absl::Status ListGpus(Cli& cli) {
  ASSIGN_OR_RETURN(Client client, cli.Connect());
  ASSIGN_OR_RETURN(const std::vector<v1::Worker> workers, client.ListWorkers());
  nlohmann::json documents = nlohmann::json::array();
  std::string names;
  for (const v1::Worker& worker : workers) {
    documents.push_back(ToJson(worker));
    for (const v1::Gpu& gpu : worker.gpus()) absl::StrAppend(&names, gpu.device(), "\n");
  }
  return cli.Answer(nlohmann::json{{"workers", std::move(documents)}},
                    cli.names() ? names : GpusText(workers));
}

absl::Status Drain(Cli& cli, const std::string& name) {
  ASSIGN_OR_RETURN(Client client, cli.Connect());
  RETURN_IF_ERROR(client.DrainWorker(name));
  return cli.Answer(
      {{"draining", name}},
      absl::StrCat("worker ", name, " gets no new work, and leaves when it is idle\n"));
}

absl::Status Undrain(Cli& cli, const std::string& name) {
  ASSIGN_OR_RETURN(Client client, cli.Connect());
  RETURN_IF_ERROR(client.UndrainWorker(name));
  return cli.Answer({{"undrained", name}},
                    absl::StrCat("worker ", name, " gets work again, unless it has left\n"));
}

absl::Status Evict(Cli& cli, const std::string& name) {
  ASSIGN_OR_RETURN(Client client, cli.Connect());
  RETURN_IF_ERROR(client.EvictWorker(name));
  return cli.Answer({{"evicted", name}},
                    absl::StrCat("worker ", name, " is lost; its process does not come back\n"));
}

absl::Status Forget(Cli& cli, const std::string& name) {
  ASSIGN_OR_RETURN(Client client, cli.Connect());
  RETURN_IF_ERROR(client.ForgetWorker(name));
  return cli.Answer({{"forgotten", name}}, absl::StrCat("worker ", name, " is off the list\n"));
}

}  // namespace

void AddWorkerCommands(Cli& cli, CLI::App& app) {
  CLI::App& group =
      cli.AddGroup(app, "worker", "Shows, drains, undrains, evicts and forgets workers");
  CLI::App& list = cli.AddCommand(group, "list", "Lists all workers by name",
                                  "  crossmesh worker list --controller 127.0.0.1:7400\n"
                                  "  crossmesh worker list --watch\n");
  cli.AddOutputFlag(list);
  const auto watch = std::make_shared<bool>(false);
  AddFlag(list, "-w,--watch", *watch, kWatchHelp);
  cli.Run(list, [&cli, watch] { return List(cli, *watch); });

  CLI::App& gpus = cli.AddCommand(
      group, "gpus", "Lists the GPUs of all workers, as their hosts and processes tell of them",
      "  crossmesh worker gpus\n"
      "crossmesh network describe makes a network file of it.\n");
  cli.AddOutputFlag(gpus);
  cli.Run(gpus, [&cli] { return ListGpus(cli); });

  CLI::App& drain =
      cli.AddCommand(group, "drain", "Gives a worker no new work; it leaves when idle",
                     "  crossmesh worker drain node-a\n");
  const auto name = std::make_shared<std::string>();
  AddOption(drain, "name", *name, "Name").Required();
  cli.Run(drain, [&cli, name] { return Drain(cli, *name); });

  CLI::App& undrain =
      cli.AddCommand(group, "undrain", "Takes a drain back, while the worker is not idle yet",
                     "  crossmesh worker undrain node-a\n");
  AddOption(undrain, "name", *name, "Name").Required();
  cli.Run(undrain, [&cli, name] { return Undrain(cli, *name); });

  CLI::App& evict =
      cli.AddCommand(group, "evict", "Has a worker lost at once, and its process stay out",
                     "  crossmesh worker evict node-a\n"
                     "Started again, it may join. What it runs fails.\n");
  AddOption(evict, "name", *name, "Name").Required();
  cli.Run(evict, [&cli, name] { return Evict(cli, *name); });

  CLI::App& forget = cli.AddCommand(group, "forget", "Takes a lost worker off the list",
                                    "  crossmesh worker forget node-a\n");
  AddOption(forget, "name", *name, "Name").Required();
  cli.Run(forget, [&cli, name] { return Forget(cli, *name); });

  for (CLI::App* command : {&list, &gpus, &drain, &undrain, &evict, &forget})
    cli.AddControllerFlags(*command);
}

}  // namespace crossmesh
