#include "client/cli/cli.h"
#include "client/cli/listing.h"
#include "client/cli/options.h"
#include "client/cli/report_text.h"
#include "client/cli/tensor_flags.h"
#include "client/client.h"
#include "common/base/status_macros.h"
#include "common/base/table.h"
#include "common/wire/tensor_codec.h"

#include <memory>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

struct ManifestFlags {
  std::string name;
  std::string file;
  int64_t revision = 0;
};

absl::Status Create(Cli& cli, const ManifestFlags& flags) {
  ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(flags.file));
  ASSIGN_OR_RETURN(Client client, cli.Connect());
  ASSIGN_OR_RETURN(const v1::PutManifestResponse response,
                   client.PutManifest(flags.name, manifest));
  return cli.Answer(
      response, absl::StrCat("manifest \"", flags.name, "\": ", response.tensors(), " tensors of ",
                             Bytes(response.size_bytes()), ", digest ", response.digest(),
                             ", revision ", response.revision(), "\n"));
}

absl::Status ListManifests(Cli& cli) {
  ASSIGN_OR_RETURN(Client client, cli.Connect());
  ASSIGN_OR_RETURN(const std::vector<v1::ListManifestsResponse::Entry> manifests,
                   client.ListManifests());
  Listing listing(cli, "manifest", "manifests", {"NAME", "TENSORS>", "SIZE>", "DIGEST"});
  for (const v1::ListManifestsResponse::Entry& entry : manifests) {
    listing.Add(
        entry.name(),
        {entry.name(), absl::StrCat(entry.tensors()), Bytes(entry.size_bytes()), entry.digest()},
        entry);
  }
  return AnswerListing(cli, listing);
}

absl::Status Show(Cli& cli, const ManifestFlags& flags) {
  ASSIGN_OR_RETURN(Client client, cli.Connect());
  ASSIGN_OR_RETURN(const Manifest manifest, client.GetManifest(flags.name));
  TextTable table({"TENSOR", "TYPE", "SHAPE", "SIZE>"});
  for (const TensorSpec& tensor : manifest.tensors()) {
    table.AddRow({PrintableName(tensor.name), std::string(DataTypeName(tensor.type)),
                  ToString(tensor.shape), Bytes(tensor.bytes())});
  }
  return cli.AnswerNamed(
      flags.name, ToProto(manifest, flags.name),
      absl::StrCat(table.ToString(), "\n", manifest.tensors().size(), " tensors of ",
                   Bytes(manifest.bytes()), ", digest ", manifest.digest().ToString(), "\n"));
}

absl::Status Delete(Cli& cli, const ManifestFlags& flags) {
  ASSIGN_OR_RETURN(Client client, cli.Connect());
  RETURN_IF_ERROR(client.DeleteManifest(flags.name, flags.revision));
  return cli.Answer({{"deleted", flags.name}},
                    absl::StrCat("manifest \"", flags.name, "\" deleted\n"));
}

}  // namespace

void AddManifestCommands(Cli& cli, CLI::App& app) {
  CLI::App& group = cli.AddGroup(app, "manifest", "Registers and shows the tensors of models");
  const auto flags = std::make_shared<ManifestFlags>();

  CLI::App& create = cli.AddCommand(group, "create", "Registers a manifest",
                                    "  crossmesh manifest create gpt2 examples/gpt2.json\n"
                                    "  crossmesh manifest create mine model.safetensors\n");
  for (const char* name : {"put", "register"}) Cli::AddOtherName(create, name);
  AddOption(create, "name", flags->name, "Name, [a-z0-9._-]{1,63}").Required();
  AddOption(create, "file", flags->file,
            "Manifest file, what `show --json` prints, or safetensors file or folder")
      .Required();
  cli.Run(create, [&cli, flags] { return Create(cli, *flags); });

  CLI::App& list =
      cli.AddCommand(group, "list", "Lists all manifests by name", "  crossmesh manifest list\n");
  cli.Run(list, [&cli] { return ListManifests(cli); });

  CLI::App& show = cli.AddCommand(group, "show", "Shows a manifest, tensor by tensor",
                                  "  crossmesh manifest show gpt2\n");
  AddOption(show, "name", flags->name, "Name").Required();
  cli.Run(show, [&cli, flags] { return Show(cli, *flags); });

  CLI::App& remove =
      cli.AddCommand(group, "delete", "Deletes a manifest", "  crossmesh manifest delete gpt2\n");
  AddOption(remove, "name", flags->name, "Name").Required();
  AddOption(remove, "--revision", flags->revision, "Only if it still has this revision");
  cli.Run(remove, [&cli, flags] { return Delete(cli, *flags); });

  for (CLI::App* command : {&list, &show}) cli.AddOutputFlag(*command);
  for (CLI::App* command : {&create, &list, &show, &remove}) cli.AddControllerFlags(*command);
}

}  // namespace crossmesh
