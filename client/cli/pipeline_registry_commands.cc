#include "client/cli/cli.h"
#include "client/cli/pipeline_flags.h"
#include "common/base/status_macros.h"
#include "common/base/table.h"

#include <memory>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

absl::Status Register(Cli& cli, const std::string& file) {
  ASSIGN_OR_RETURN(const v1::PipelineSpec spec, ReadPipelineSpec(file));
  ASSIGN_OR_RETURN(Client client, cli.Connect());
  RETURN_IF_ERROR(client.CreatePipeline(spec));
  if (cli.json()) {
    cli.PrintDocument({{"registered", spec.name()}});
  } else {
    cli.Print(absl::StrCat("pipeline ", spec.name(), " is registered\n"));
  }
  return absl::OkStatus();
}

absl::Status List(Cli& cli) {
  ASSIGN_OR_RETURN(Client client, cli.Connect());
  ASSIGN_OR_RETURN(const std::vector<v1::PipelineSpec> pipelines, client.ListPipelines());
  if (cli.json()) {
    nlohmann::json document = {{"pipelines", nlohmann::json::array()}};
    for (const v1::PipelineSpec& spec : pipelines) document["pipelines"].push_back(ToJson(spec));
    cli.PrintDocument(document);
    return absl::OkStatus();
  }
  using Align = TextTable::Align;
  TextTable table({{"NAME"},
                   {"STAGES", Align::kRight},
                   {"RANKS", Align::kRight},
                   {"EDGES", Align::kRight},
                   {"MICROBATCHES", Align::kRight}});
  for (const v1::PipelineSpec& spec : pipelines) {
    int64_t microbatches = 0;
    for (const v1::PipelineMicrobatches& run : spec.microbatches()) microbatches += run.count();
    table.AddRow({spec.name(), absl::StrCat(spec.stages_size()), absl::StrCat(spec.ranks_size()),
                  absl::StrCat(spec.edges_size()), absl::StrCat(microbatches)});
  }
  cli.Print(table.ToString());
  return absl::OkStatus();
}

absl::Status Delete(Cli& cli, const std::string& name) {
  ASSIGN_OR_RETURN(Client client, cli.Connect());
  RETURN_IF_ERROR(client.DeletePipeline(name));
  if (cli.json()) {
    cli.PrintDocument({{"deleted", name}});
  } else {
    cli.Print(absl::StrCat("pipeline ", name, " is deleted\n"));
  }
  return absl::OkStatus();
}

}  // namespace

void AddPipelineRegistryCommands(Cli& cli, CLI::App& group) {
  const auto text = std::make_shared<std::string>();

  CLI::App& add = cli.AddCommand(group, "register", "Makes a pipeline known by its name",
                                 "  crossmesh pipeline register examples/pipeline.json\n");
  add.add_option("pipeline", *text, "JSON file of the pipeline (PipelineSpec)")->required();
  cli.Run(add, [&cli, text] { return Register(cli, *text); });

  CLI::App& list =
      cli.AddCommand(group, "list", "Lists registered pipelines", "  crossmesh pipeline list\n");
  cli.Run(list, [&cli] { return List(cli); });

  CLI::App& remove = cli.AddCommand(group, "delete", "Forgets a registered pipeline",
                                    "  crossmesh pipeline delete u-net\n");
  remove.add_option("name", *text, "Its name")->required();
  cli.Run(remove, [&cli, text] { return Delete(cli, *text); });

  for (CLI::App* command : {&add, &list, &remove}) cli.AddControllerFlags(*command);
}

}  // namespace crossmesh
