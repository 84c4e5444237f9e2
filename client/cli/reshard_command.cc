#include "client/cli/cli.h"
#include "client/cli/interrupt_notice.h"
#include "client/cli/operation_report.h"
#include "client/cli/options.h"
#include "client/cli/spec_flags.h"
#include "client/client.h"
#include "common/base/status_macros.h"

#include <iostream>
#include <memory>
#include <string>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

struct ReshardFlags {
  SpecFlags spec;
  std::string request_id;
  bool detach = false;
};

// What is said where this program ends before the operation.
std::string GoesOn(const std::string& id) {
  return absl::StrCat("operation ", id, " goes on: `crossmesh operation watch ", id,
                      "` follows it, `crossmesh operation cancel ", id, "` ends it");
}

std::string MayHaveArrived(const std::string& request_id) {
  return absl::StrCat(
      "the request may have arrived: `crossmesh operation list` tells, and the same ",
      "command with --request-id ", request_id, " follows it");
}

absl::Status Detach(Cli& cli, Client& client, const v1::ExecuteReshardRequest& request) {
  ASSIGN_OR_RETURN(const v1::Operation operation, client.Start(request));
  return cli.Answer(operation, absl::StrCat(operation.id(), "\n"));
}

absl::Status Reshard(Cli& cli, const ReshardFlags& flags) {
  v1::ExecuteReshardRequest request;
  ASSIGN_OR_RETURN(*request.mutable_spec(), flags.spec.Read());
  request.set_request_id(flags.request_id.empty() ? NewRequestId() : flags.request_id);
  // Signals are to be blocked before a connection has threads.
  ASSIGN_OR_RETURN(const std::unique_ptr<InterruptNotice> interrupts,
                   InterruptNotice::Handle(MayHaveArrived(request.request_id())));
  ASSIGN_OR_RETURN(Client client, cli.Connect());
  if (flags.detach) return Detach(cli, client, request);
  bool is_known = false;
  return FollowOperation(cli, "reshard", [&](Client::OnChange on_change) {
    return client.Execute(request, [&](const v1::Operation& now) {
      interrupts->Set(GoesOn(now.id()));
      // At once: it is what the operation can be watched and cancelled by.
      if (!std::exchange(is_known, true) && !cli.json()) {
        std::cerr << "operation " << now.id() << std::endl;
      }
      on_change(now);
    });
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
  AddOption(command, "--request-id", flags->request_id,
            "Names this request: given again, it is the same operation");
  AddFlag(command, "--detach", flags->detach,
          "Print the operation's id as soon as it has begun, and leave it to itself");
  cli.Run(command, [&cli, flags] { return Reshard(cli, *flags); });
}

}  // namespace crossmesh
