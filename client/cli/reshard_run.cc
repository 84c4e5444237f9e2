#include "client/cli/reshard_run.h"

#include "client/cli/cli.h"
#include "client/cli/interrupt_notice.h"
#include "client/cli/operation_report.h"
#include "client/cli/options.h"
#include "client/client.h"
#include "common/base/status_macros.h"

#include <iostream>
#include <memory>
#include <string>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

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

}  // namespace

void ReshardRun::AddTo(CLI::App& command) {
  AddOption(command, "--request-id", request_id_,
            "Names this request: given again, it is the same operation");
  AddFlag(command, "--detach", detach_,
          "Print the operation's id as soon as it has begun, and leave it to itself");
}

absl::Status ReshardRun::Run(Cli& cli, const v1::ReshardSpec& spec,
                             const std::string& label) const {
  v1::ExecuteReshardRequest request;
  *request.mutable_spec() = spec;
  request.set_request_id(request_id_.empty() ? NewRequestId() : request_id_);
  // Signals are to be blocked before a connection has threads.
  ASSIGN_OR_RETURN(const std::unique_ptr<InterruptNotice> interrupts,
                   InterruptNotice::Handle(MayHaveArrived(request.request_id())));
  ASSIGN_OR_RETURN(Client client, cli.Connect());
  if (detach_) return Detach(cli, client, request);
  bool is_known = false;
  return FollowOperation(cli, label, [&](Client::OnChange on_change) {
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

}  // namespace crossmesh
