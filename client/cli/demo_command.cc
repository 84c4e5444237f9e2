#include "client/cli/cli.h"

#include <cerrno>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <unistd.h>

namespace crossmesh {
namespace {

// The demo is a script of this command line's commands.
absl::Status BecomeDemo(const std::vector<std::string>& arguments) {
  std::vector<std::string> texts = {"python3", SharedFile("demo.py")};
  texts.insert(texts.end(), arguments.begin(), arguments.end());
  std::vector<char*> words;
  for (std::string& text : texts) words.push_back(text.data());
  words.push_back(nullptr);
  ::execvp(words[0], words.data());
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot run python3 ", texts[1]));
}

}  // namespace

void AddDemoCommand(Cli& cli, CLI::App& app) {
  CLI::App& command = *app.add_subcommand(
      "demo", "Moves GPT-2 between two meshes of real workers on this machine, and checks it");
  // All that follows, --help as well, is the script's.
  command.prefix_command();
  command.set_help_flag();
  cli.Run(command, [&command] { return BecomeDemo(command.remaining()); });
}

}  // namespace crossmesh
