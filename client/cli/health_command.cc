#include "client/cli/cli.h"
#include "client/cli/options.h"
#include "common/base/status_macros.h"
#include "common/mesh/json_reader.h"
#include "common/rpc/channel.h"
#include "common/rpc/health_check.h"

#include <memory>
#include <string>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

constexpr absl::Duration kAnswerMax = absl::Seconds(5);

// A controller has a list of addresses, a worker one.
absl::StatusOr<std::string> AddressIn(const std::string& ready_file) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(ready_file));
  const nlohmann::json ready = ParseJson(ready_file, text).value_or(nlohmann::json());
  const nlohmann::json* address = nullptr;
  if (ready.is_object() && ready.contains("execution_address")) {
    address = &ready["execution_address"];
  } else if (ready.is_object() && ready.contains("addresses") && !ready["addresses"].empty()) {
    address = &ready["addresses"].front();
  }
  if (address == nullptr || !address->is_string()) {
    return absl::InvalidArgumentError(
        absl::StrCat("file ", ready_file, ": expected the ready file of a controller or a worker"));
  }
  return address->get<std::string>();
}

absl::Status Ask(Cli& cli, const std::string& ready_file) {
  // The one code of a health check that fails, whatever the reason.
  cli.SetExitCode(ExitCode::kFailed);
  ASSIGN_OR_RETURN(const std::string address, AddressIn(ready_file));
  // The daemon is one of this host, and is told nothing.
  ASSIGN_OR_RETURN(const std::shared_ptr<grpc::Channel> channel,
                   BuildRpcChannel({.address = address, .insecure = true}));
  ASSIGN_OR_RETURN(const bool serving, IsServing(channel, "", kAnswerMax));
  if (!serving) return absl::UnavailableError(absl::StrCat(address, " does not serve"));
  return cli.Answer({{"address", address}, {"serving", true}}, absl::StrCat(address, " serves\n"));
}

}  // namespace

void AddHealthCommand(Cli& cli, CLI::App& app) {
  CLI::App& command = cli.AddCommand(app, "health", "Asks a daemon of this host whether it serves",
                                     "  crossmesh health /run/crossmesh-worker/ready\n"
                                     "Exits with an error when the daemon does not.\n");
  const auto ready_file = std::make_shared<std::string>();
  AddOption(command, "ready_file", *ready_file, "What the daemon was given as --ready-file")
      .Required();
  cli.Run(command, [&cli, ready_file] { return Ask(cli, *ready_file); });
}

}  // namespace crossmesh
