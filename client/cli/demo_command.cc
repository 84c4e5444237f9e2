#include "client/cli/cli.h"

#include <cerrno>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <unistd.h>

namespace crossmesh {
namespace {

namespace fs = std::filesystem;

// The demo is a script of this command line's commands, which lies in share/crossmesh beside the
// folder of the programs.
absl::Status BecomeDemo(const std::vector<std::string>& arguments) {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  std::vector<std::string> texts = {
      "python3",
      (program.parent_path().parent_path() / "share" / "crossmesh" / "demo.py").string()};
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
