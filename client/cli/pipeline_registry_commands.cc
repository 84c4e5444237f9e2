#include "client/cli/cli.h"
#include "client/cli/listing.h"
#include "client/cli/options.h"
#include "client/cli/pipeline_flags.h"
#include "client/client.h"
#include "common/base/count_text.h"
#include "common/base/status_macros.h"

#include <memory>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

absl::Status Create(Cli& cli, const std::string& file) {
  ASSIGN_OR_RETURN(const v1::PipelineSpec spec, ReadPipelineSpec(file));
  if (spec.name().empty()) {
    return absl::InvalidArgumentError(absl::StrCat(file, ": expected a name, found none"));
  }
  ASSIGN_OR_RETURN(Client client, cli.Connect());
  ASSIGN_OR_RETURN(const int64_t revision, client.CreatePipeline(spec));
  return cli.Answer(
      {{"name", spec.name()}, {"revision", revision}},
      absl::StrCat("pipeline \"", spec.name(),
                   "\": ", CountText(spec.stages_size(), "stage", "stages"), " on ",
                   CountText(spec.ranks_size(), "rank", "ranks"), ", revision ", revision, "\n"));
}

int64_t MicrobatchesOf(const v1::PipelineSpec& spec) {
  int64_t count = 0;
  for (const v1::PipelineMicrobatches& some : spec.microbatches()) count += some.count();
  return count;
}

absl::Status ListPipelines(Cli& cli) {
  ASSIGN_OR_RETURN(Client client, cli.Connect());
  ASSIGN_OR_RETURN(const std::vector<v1::PipelineSpec> pipelines, client.ListPipelines());
  Listing listing(cli, "pipeline", "pipelines",
                  {"NAME", "RANKS>", "STAGES>", "EDGES>", "MICROBATCHES>"});
  for (const v1::PipelineSpec& spec : pipelines) {
    listing.Add(spec.name(),
                {spec.name(), absl::StrCat(spec.ranks_size()), absl::StrCat(spec.stages_size()),
                 absl::StrCat(spec.edges_size()), absl::StrCat(MicrobatchesOf(spec))},
                spec);
  }
  return AnswerListing(cli, listing);
}

absl::Status Delete(Cli& cli, const std::string& name) {
  ASSIGN_OR_RETURN(Client client, cli.Connect());
  RETURN_IF_ERROR(client.DeletePipeline(name));
  return cli.Answer({{"deleted", name}}, absl::StrCat("pipeline \"", name, "\" deleted\n"));
}

}  // namespace

void AddPipelineRegistryCommands(Cli& cli, CLI::App& group) {
  const auto file = std::make_shared<std::string>(), name = std::make_shared<std::string>();

  CLI::App& create = cli.AddCommand(group, "create", "Registers a pipeline under its name",
                                    "  crossmesh pipeline create examples/pipeline.json\n");
  for (const char* other : {"put", "register"}) Cli::AddOtherName(create, other);
  AddOption(create, "file", *file, "JSON file of the pipeline (PipelineSpec)").Required();
  cli.Run(create, [&cli, file] { return Create(cli, *file); });

  CLI::App& list = cli.AddCommand(group, "list", "Lists all registered pipelines by name",
                                  "  crossmesh pipeline list --json\n");
  cli.AddOutputFlag(list);
  cli.Run(list, [&cli] { return ListPipelines(cli); });

  CLI::App& remove = cli.AddCommand(group, "delete", "Deletes a registered pipeline",
                                    "  crossmesh pipeline delete u-net\n");
  AddOption(remove, "name", *name, "Name").Required();
  cli.Run(remove, [&cli, name] { return Delete(cli, *name); });

  for (CLI::App* command : {&create, &list, &remove}) cli.AddControllerFlags(*command);
}

}  // namespace crossmesh
