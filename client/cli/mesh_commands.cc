#include "client/cli/cli.h"
#include "client/cli/listing.h"
#include "client/cli/options.h"
#include "client/client.h"
#include "common/base/status_macros.h"
#include "common/base/table.h"
#include "common/mesh/mesh.h"
#include "common/wire/tensor_codec.h"

#include <memory>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

struct MeshFlags {
  std::string name;
  std::string mesh;
  int64_t revision = 0;
};

absl::Status Create(Cli& cli, const MeshFlags& flags) {
  ASSIGN_OR_RETURN(const Mesh mesh, ParseMesh(flags.mesh));
  ASSIGN_OR_RETURN(Client client, cli.Connect());
  ASSIGN_OR_RETURN(const int64_t revision, client.CreateMesh(ToProto(mesh, flags.name)));
  return cli.Answer({{"name", flags.name}, {"revision", revision}},
                    absl::StrCat("mesh \"", flags.name, "\": ", mesh.slots(), " slots, revision ",
                                 revision, "\n"));
}

absl::Status ListMeshes(Cli& cli) {
  ASSIGN_OR_RETURN(Client client, cli.Connect());
  ASSIGN_OR_RETURN(const std::vector<v1::Mesh> meshes, client.ListMeshes());
  Listing listing(cli, "mesh", "meshes", {"NAME", "AXES", "DEVICES"});
  for (const v1::Mesh& mesh : meshes) {
    listing.Add(mesh.name(), {mesh.name(), mesh.axes(), mesh.devices()}, mesh);
  }
  return AnswerListing(cli, listing);
}

absl::Status Show(Cli& cli, const MeshFlags& flags) {
  ASSIGN_OR_RETURN(Client client, cli.Connect());
  ASSIGN_OR_RETURN(const v1::GetMeshResponse response, client.GetMesh(flags.name));
  if (cli.json() || cli.names()) return cli.AnswerNamed(flags.name, response, "");
  ASSIGN_OR_RETURN(const Mesh mesh, FromProto(response.mesh()));
  std::vector<std::string> columns = {"SLOT>"};
  for (const Axis& axis : mesh.axes()) columns.push_back(axis.name + ">");
  columns.emplace_back("DEVICE");
  TextTable table(columns);
  for (int64_t slot = 0; slot < mesh.slots(); ++slot) {
    std::vector<std::string> row = {absl::StrCat(slot)};
    for (int axis = 0; axis < mesh.rank(); ++axis) {
      row.push_back(absl::StrCat(mesh.Coordinate(slot, axis)));
    }
    row.push_back(ToString(mesh.devices()[slot]));
    table.AddRow(row);
  }
  cli.Print(absl::StrCat(flags.name, ", revision ", response.revision(), ": ", ToString(mesh),
                         "\n\n", table.ToString()));
  return absl::OkStatus();
}

absl::Status Delete(Cli& cli, const MeshFlags& flags) {
  ASSIGN_OR_RETURN(Client client, cli.Connect());
  RETURN_IF_ERROR(client.DeleteMesh(flags.name, flags.revision));
  return cli.Answer({{"deleted", flags.name}}, absl::StrCat("mesh \"", flags.name, "\" deleted\n"));
}

}  // namespace

void AddMeshCommands(Cli& cli, CLI::App& app) {
  CLI::App& group = cli.AddGroup(app, "mesh", "Registers and shows device meshes");
  const auto flags = std::make_shared<MeshFlags>();

  CLI::App& create =
      cli.AddCommand(group, "create", "Registers a mesh",
                     "  crossmesh mesh create trainer 'data=2,model=2 on node-a.0-1,node-b.0-1'\n");
  for (const char* name : {"put", "register"}) Cli::AddOtherName(create, name);
  AddOption(create, "name", flags->name, "Name, [a-z0-9._-]{1,63}").Required();
  AddOption(create, "mesh", flags->mesh, "Mesh in text form").Required();
  cli.Run(create, [&cli, flags] { return Create(cli, *flags); });

  CLI::App& list =
      cli.AddCommand(group, "list", "Lists all meshes by name", "  crossmesh mesh list --json\n");
  cli.Run(list, [&cli] { return ListMeshes(cli); });

  CLI::App& show = cli.AddCommand(group, "show", "Shows a mesh, slot by slot",
                                  "  crossmesh mesh show trainer\n");
  AddOption(show, "name", flags->name, "Name").Required();
  cli.Run(show, [&cli, flags] { return Show(cli, *flags); });

  CLI::App& remove =
      cli.AddCommand(group, "delete", "Deletes a mesh", "  crossmesh mesh delete trainer\n");
  AddOption(remove, "name", flags->name, "Name").Required();
  AddOption(remove, "--revision", flags->revision, "Only if it still has this revision");
  cli.Run(remove, [&cli, flags] { return Delete(cli, *flags); });

  for (CLI::App* command : {&list, &show}) cli.AddOutputFlag(*command);
  for (CLI::App* command : {&create, &list, &show, &remove}) cli.AddControllerFlags(*command);
}

}  // namespace crossmesh
