// crossmesh: the command line.

#include "client/cli/cli.h"
#include "client/cli/command_line.h"
#include "client/cli/report_text.h"
#include "common/base/version.h"

#include <exception>
#include <iostream>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <absl/strings/str_cat.h>
#include <absl/strings/string_view.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

constexpr const char* kExamples =
    "Examples:\n"
    "  crossmesh demo\n"
    "  crossmesh layout show --mesh 'data=2,model=2 on a.0-1,b.0-1' --layout '[data, model]' "
    "--shape '[8, 6]'\n"
    "  crossmesh plan --help\n";

int Fail(Cli& cli, bool json, const absl::Status& status, ExitCode code) {
  std::cout << std::flush;
  std::cerr << "crossmesh: error: " << Printable(status.message()) << "\n";
  if (json && !cli.printed_document()) cli.PrintDocument(ErrorDocument(status));
  return static_cast<int>(code);
}

// The parser may fail before it has seen the flag.
bool AsksForJson(std::span<char* const> arguments) {
  absl::string_view before;
  for (const absl::string_view argument : arguments) {
    const bool is_output = before == "--output" || before == "-o";
    if (argument == "--json" || argument == "--output=json" || argument == "-ojson" ||
        (is_output && argument == "json")) {
      return true;
    }
    before = argument;
  }
  return false;
}

// What was to be printed and was not is a failure as well: a script would go on with half of it.
int Succeed(const absl::Status& output) {
  if (output.ok()) return static_cast<int>(ExitCode::kDone);
  std::cerr << "crossmesh: error: " << output.message() << "\n";
  return static_cast<int>(ExitCode::kFailed);
}

int Main(int argc, char** argv) {
  const bool json = AsksForJson(std::span(argv, argc));
  Cli cli;
  CLI::App app("Moves sharded tensors between device meshes.", "crossmesh");
  HideOtherNames(app);
  app.require_subcommand(1);
  app.set_version_flag("--version", VersionLine("crossmesh"), "Print the version and exit");
  app.footer(kExamples);
  cli.AddControllerFlags(app);
  AddContextCommands(cli, app);
  AddDemoCommand(cli, app);
  AddDoctorCommand(cli, app);
  AddGpuCommands(cli, app);
  AddGridCommands(cli, app);
  AddHealthCommand(cli, app);
  AddPipelineCommands(cli, app);
  AddPlanCommand(cli, app);
  AddRedistributeCommand(cli, app);
  AddReshardCommand(cli, app);
  AddSimulateCommand(cli, app);
  AddLayoutCommands(cli, app);
  AddMeshCommands(cli, app);
  AddManifestCommands(cli, app);
  AddManualCommands(cli, app);
  AddNetworkCommands(cli, app);
  AddOperationCommands(cli, app);
  AddStatusCommands(cli, app);
  AddStorageCommands(cli, app);
  AddUpkeepCommands(cli, app);
  AddWorkerCommands(cli, app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& shown) {  // help, or the version
    const absl::Status names = CheckCommandNames(app);
    if (!names.ok()) return Fail(cli, json, names, ExitCode::kMisused);
    std::ostringstream text;
    app.exit(shown, text);
    cli.Print(text.str());
    return Succeed(cli.OutputError());
  } catch (const CLI::ParseError& error) {
    for (const absl::Status& names : {CheckCommandNames(app), CheckFlagNames(app)}) {
      if (!names.ok()) return Fail(cli, json, names, ExitCode::kMisused);
    }
    // What the parser did not know says more than what it missed for that reason.
    const std::vector<std::string> unknown = app.remaining(/*recurse=*/true);
    const std::string message =
        unknown.empty() ? error.what() : absl::StrCat("unknown argument \"", unknown.front(), "\"");
    return Fail(cli, json, absl::InvalidArgumentError(message), ExitCode::kMisused);
  }
  const absl::Status misuse = cli.CheckFlags();
  if (!misuse.ok()) return Fail(cli, json, misuse, ExitCode::kMisused);
  // After parsing, so that a mistake in any flag is told before anything is done.
  const absl::Status status = cli.action()();
  if (!status.ok()) return Fail(cli, json, status, cli.ExitCodeOf(status));
  return Succeed(cli.OutputError());
}

}  // namespace
}  // namespace crossmesh

int main(int argc, char** argv) {
  try {
    return crossmesh::Main(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << "crossmesh: error: " << error.what() << "\n";
    return static_cast<int>(crossmesh::ExitCode::kFailed);
  }
}
