#include "client/cli/cli.h"
#include "client/cli/operation_report.h"
#include "client/cli/spec_flags.h"
#include "common/base/status_macros.h"

#include <memory>
#include <string>

namespace crossmesh {
namespace {

struct ReshardFlags {
  SpecFlags spec;
  std::string request_id;
};

absl::Status Reshard(Cli& cli, const ReshardFlags& flags) {
  v1::ExecuteReshardRequest request;
  ASSIGN_OR_RETURN(*request.mutable_spec(), flags.spec.Read());
  request.set_request_id(flags.request_id.empty() ? NewRequestId() : flags.request_id);
  ASSIGN_OR_RETURN(Client client, cli.Connect());
  return FollowOperation(cli, "reshard", [&](Client::OnChange on_change) {
    return client.Execute(request, on_change);
  });
}

}  // namespace

void AddReshardCommand(Cli& cli, CLI::App& app) {
  CLI::App& command = cli.AddCommand(
      app, "reshard", "Moves tensors between meshes, and follows it to its end",
      "  crossmesh reshard --manifest gpt2 --source trainer --source-rules gpt2.fsdp.rules "
      "--source-storage weights --destination server --destination-rules gpt2.tp.rules "
      "--destination-storage serving --replica-axes replica --create-destination\n"
      "  crossmesh reshard --request request.json --request-id release-7\n"
      "Interrupting it does not end the operation; `crossmesh operation cancel` does.\n");
  const auto flags = std::make_shared<ReshardFlags>();
  cli.AddControllerFlags(command);
  flags->spec.AddTo(command);
  flags->spec.AddExecutionTo(command);
  command.add_option("--request-id", flags->request_id,
                     "Names this request: given again, it is the same operation");
  cli.Run(command, [&cli, flags] { return Reshard(cli, *flags); });
}

}  // namespace crossmesh
