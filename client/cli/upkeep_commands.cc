// What an operator asks of a controller that runs: of its store, and all that it knows.

#include "client/cli/cli.h"
#include "client/cli/cluster_view.h"
#include "client/client.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"

#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

constexpr int32_t kLogLines = 1000;

// Reads and copies go through the whole store.
constexpr absl::Duration kStoreCallMax = absl::Minutes(10);

absl::Status BackUp(Cli& cli) {
  ASSIGN_OR_RETURN(Client client, cli.Connect(kStoreCallMax));
  ASSIGN_OR_RETURN(const std::string file, client.BackUpStore());
  return cli.Answer({{"file", file}},
                    absl::StrCat("verified copy, on the controller's machine: ", file, "\n"));
}

absl::Status Verify(Cli& cli) {
  ASSIGN_OR_RETURN(Client client, cli.Connect(kStoreCallMax));
  ASSIGN_OR_RETURN(const int64_t revision, client.VerifyStore());
  return cli.Answer({{"revision", revision}},
                    absl::StrCat("the store is whole, up to revision ", revision, "\n"));
}

absl::Status ReleaseReserve(Cli& cli) {
  ASSIGN_OR_RETURN(Client client, cli.Connect());
  RETURN_IF_ERROR(client.ReleaseStoreReserve());
  return cli.Answer({{"released", true}},
                    "deletes have the room of the store's reserve until there is room again\n");
}

template <typename Messages>
nlohmann::json ListOf(const Messages& messages) {
  nlohmann::json list = nlohmann::json::array();
  for (const auto& message : messages) list.push_back(ToJson(message));
  return list;
}

// Of manifests, which may have gigabytes, only what lists show.
absl::StatusOr<nlohmann::json> Dump(Client& client) {
  ASSIGN_OR_RETURN(const ClusterView view, LookAtCluster(client, RealClock().Monotonic()));
  ASSIGN_OR_RETURN(const std::vector<v1::Mesh> meshes, client.ListMeshes());
  ASSIGN_OR_RETURN(const std::vector<v1::ListManifestsResponse::Entry> manifests,
                   client.ListManifests());
  ASSIGN_OR_RETURN(const std::vector<v1::PipelineSpec> pipelines, client.ListPipelines());
  ASSIGN_OR_RETURN(const std::vector<std::string> lines, client.ListLogLines(kLogLines));
  nlohmann::json log = nlohmann::json::array();
  for (const std::string& line : lines) {
    log.push_back(nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false));
  }
  return nlohmann::json{{"controller", ToJson(view.controller)},
                        {"network", ToJson(view.network)},
                        {"workers", ListOf(view.workers)},
                        {"operations", ListOf(view.operations)},
                        {"runs", ListOf(view.runs)},
                        {"meshes", ListOf(meshes)},
                        {"manifests", ListOf(manifests)},
                        {"pipelines", ListOf(pipelines)},
                        {"log", std::move(log)}};
}

}  // namespace

void AddUpkeepCommands(Cli& cli, CLI::App& app) {
  CLI::App& backup =
      cli.AddCommand(app, "backup", "Has the controller copy its store, and verify the copy",
                     "  crossmesh backup\n"
                     "The copy is in its --backup-dir. A controller that does not run:\n"
                     "crossmesh-controller backup --state-dir FOLDER FILE\n");
  cli.Run(backup, [&cli] { return BackUp(cli); });

  CLI::App& verify = cli.AddCommand(
      app, "verify-store", "Has the controller read its whole store, and hold it to its sums",
      "  crossmesh verify-store\n");
  cli.Run(verify, [&cli] { return Verify(cli); });

  CLI::App& release = cli.AddCommand(
      app, "release-reserve", "Gives deletes the room that the store keeps back, when it is full",
      "  crossmesh release-reserve\n"
      "Then delete what is not needed, or make room; the reserve comes back by itself.\n");
  cli.Run(release, [&cli] { return ReleaseReserve(cli); });

  CLI::App& group = cli.AddGroup(app, "debug", "Collects what a report of a fault should have");
  CLI::App& dump = cli.AddCommand(
      group, "dump", "Prints what the controller knows, and the last lines of its log, as JSON",
      "  crossmesh debug dump > dump.json\n"
      "It has names, addresses and errors, and no bytes of tensors.\n");
  cli.Run(dump, [&cli]() -> absl::Status {
    ASSIGN_OR_RETURN(Client client, cli.Connect());
    ASSIGN_OR_RETURN(const nlohmann::json document, Dump(client));
    cli.PrintDocument(document);
    return absl::OkStatus();
  });

  for (CLI::App* command : {&backup, &verify, &release, &dump}) cli.AddControllerFlags(*command);
}

}  // namespace crossmesh
