#include "client/cli/cli.h"
#include "client/cli/reshard_run.h"
#include "client/cli/spec_flags.h"
#include "common/base/status_macros.h"

#include <memory>

namespace crossmesh {
namespace {

struct ReshardFlags {
  SpecFlags spec;
  ReshardRun run;
};

absl::Status Reshard(Cli& cli, const ReshardFlags& flags) {
  ASSIGN_OR_RETURN(const v1::ReshardSpec spec, flags.spec.Read());
  return flags.run.Run(cli, spec, "reshard");
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
  flags->run.AddTo(command);
  cli.Run(command, [&cli, flags] { return Reshard(cli, *flags); });
}

}  // namespace crossmesh
