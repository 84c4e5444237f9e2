#include "client/cli/cli.h"
#include "client/cli/contexts.h"
#include "client/cli/listing.h"
#include "client/cli/options.h"
#include "common/base/status_macros.h"

#include <memory>
#include <string>

#include <absl/functional/function_ref.h>
#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

struct ContextFlags {
  std::string name;
  ControllerContext context;
};

nlohmann::json DocumentOf(const Contexts& contexts, const std::string& name,
                          const ControllerContext& context) {
  return {{"name", name},
          {"controller", context.controller},
          {"insecure", context.insecure},
          {"current", name == contexts.current()}};
}

absl::Status List(Cli& cli) {
  ASSIGN_OR_RETURN(const Contexts contexts, Contexts::Read(Contexts::FilePath()));
  Listing listing(cli, "context", "contexts", {"CURRENT", "NAME", "CONTROLLER", "INSECURE"});
  for (const auto& [name, context] : contexts.all()) {
    listing.Add(name,
                {name == contexts.current() ? "*" : "", name, context.controller,
                 context.insecure ? "yes" : "no"},
                DocumentOf(contexts, name, context));
  }
  return AnswerListing(cli, listing);
}

absl::Status Show(Cli& cli, const ContextFlags& flags) {
  ASSIGN_OR_RETURN(const Contexts contexts, Contexts::Read(Contexts::FilePath()));
  const std::string& name = flags.name.empty() ? contexts.current() : flags.name;
  if (name.empty()) {
    return absl::NotFoundError("context: expected one in use, found none; see context use");
  }
  ASSIGN_OR_RETURN(const ControllerContext context, contexts.Find(name));
  return cli.Answer(DocumentOf(contexts, name, context),
                    cli.names() ? name + "\n"
                                : absl::StrCat(name, ": ", context.controller,
                                               context.insecure ? ", insecure" : "", "\n"));
}

// Changes the file by `change`, which says what it has done.
absl::Status Change(Cli& cli, const ContextFlags& flags, const char* done,
                    absl::FunctionRef<absl::Status(Contexts&)> change) {
  const std::string path = Contexts::FilePath();
  ASSIGN_OR_RETURN(Contexts contexts, Contexts::Read(path));
  RETURN_IF_ERROR(change(contexts));
  RETURN_IF_ERROR(contexts.Write(path));
  return cli.Answer({{done, flags.name}},
                    absl::StrCat("context \"", flags.name, "\" ", done, ", in ", path, "\n"));
}

}  // namespace

void AddContextCommands(Cli& cli, CLI::App& app) {
  CLI::App& group = cli.AddGroup(app, "context", "Names controllers, and says which one is meant");
  const auto flags = std::make_shared<ContextFlags>();

  CLI::App& list =
      cli.AddCommand(group, "list", "Lists all contexts by name", "  crossmesh context list\n");
  cli.Run(list, [&cli] { return List(cli); });

  CLI::App& use =
      cli.AddCommand(group, "use", "Has commands ask this controller where nothing else says",
                     "  crossmesh context use lab\n");
  cli.Run(use, [&cli, flags] {
    return Change(cli, *flags, "used",
                  [&](Contexts& contexts) { return contexts.Use(flags->name); });
  });

  CLI::App& show = cli.AddCommand(group, "show", "Shows a context", "  crossmesh context show\n");
  AddOption(show, "name", flags->name, "Name; without it, the one in use");
  cli.Run(show, [&cli, flags] { return Show(cli, *flags); });

  CLI::App& set = cli.AddCommand(group, "set", "Names a controller, or changes what it is",
                                 "  crossmesh context set lab 192.0.2.1:7400 --insecure\n");
  cli.Run(set, [&cli, flags] {
    return Change(cli, *flags, "set",
                  [&](Contexts& contexts) { return contexts.Set(flags->name, flags->context); });
  });

  CLI::App& remove =
      cli.AddCommand(group, "delete", "Deletes a context", "  crossmesh context delete lab\n");
  cli.Run(remove, [&cli, flags] {
    return Change(cli, *flags, "deleted",
                  [&](Contexts& contexts) { return contexts.Delete(flags->name); });
  });

  for (CLI::App* command : {&use, &set, &remove}) {
    AddOption(*command, "name", flags->name, "Name, [a-z0-9._-]{1,63}").Required();
  }
  AddOption(set, "address", flags->context.controller, "Its address, e.g. 192.0.2.1:7400")
      .Required();
  AddFlag(set, "--insecure", flags->context.insecure,
          "Allow an address that other machines can reach");
  for (CLI::App* command : {&list, &show}) cli.AddOutputFlag(*command);
}

}  // namespace crossmesh
