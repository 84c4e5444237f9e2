#include "client/cli/cli.h"
#include "client/cli/completion.h"
#include "client/cli/options.h"
#include "common/base/version.h"
#include "common/daemon/manual_page.h"

#include <iterator>
#include <memory>
#include <string>

#include <nlohmann/json.hpp>

namespace crossmesh {

void AddManualCommands(Cli& cli, CLI::App& app) {
  CLI::App& completion = cli.AddCommand(
      app, "completion", "Prints a script that has a shell complete commands and flags",
      "  source <(crossmesh completion bash)\n"
      "  crossmesh completion fish > ~/.config/fish/completions/crossmesh.fish\n"
      "Packages bring these scripts.\n");
  const auto shell = std::make_shared<std::string>();
  AddOption(completion, "shell", *shell, "bash, fish or zsh")
      .Required()
      .OneOf({std::begin(kShells), std::end(kShells)});
  cli.Run(completion, [&cli, &app, shell] {
    const std::string script = CompletionScript(app, *shell);
    return cli.Answer({{"script", script}}, script);
  });

  CLI::App& manual =
      cli.AddCommand(app, "manual", "Prints the manual page, which has all helps in one",
                     "  crossmesh manual | man --local-file -\n"
                     "Packages bring it: man crossmesh.\n");
  cli.Run(manual, [&cli, &app] {
    const std::string page = ManualPage(app, 1, VersionLine("crossmesh"));
    return cli.Answer({{"page", page}}, page);
  });
}

}  // namespace crossmesh
