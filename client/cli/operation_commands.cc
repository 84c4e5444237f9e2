#include "client/cli/cli.h"
#include "client/cli/listing.h"
#include "client/cli/operation_report.h"
#include "client/cli/options.h"
#include "client/cli/report_text.h"
#include "client/client.h"
#include "common/base/status_macros.h"

#include <memory>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

struct OperationFlags {
  std::string id;
  std::string reason = "asked for on the command line";
  int64_t count = kListedDefault;
  bool watch = false;
  bool wait = false;
};

absl::Status ListOperations(Cli& cli, const OperationFlags& flags) {
  RETURN_IF_ERROR(CheckCount(flags.count));
  ASSIGN_OR_RETURN(Client client, cli.Connect());
  const auto list = [&]() -> absl::StatusOr<Listing> {
    ASSIGN_OR_RETURN(const std::vector<v1::Operation> operations,
                     client.ListOperations(flags.count));
    return OperationListing(cli, operations);
  };
  if (flags.watch) return WatchListing(cli, {.list = list, .tells_gone = false});
  ASSIGN_OR_RETURN(const Listing listing, list());
  return AnswerListing(cli, listing);
}

absl::Status Show(Cli& cli, const OperationFlags& flags) {
  ASSIGN_OR_RETURN(Client client, cli.Connect());
  ASSIGN_OR_RETURN(const v1::Operation operation, client.GetOperation(flags.id));
  return cli.AnswerNamed(operation.id(), operation, OperationText(operation));
}

absl::Status Watch(Cli& cli, const OperationFlags& flags) {
  ASSIGN_OR_RETURN(Client client, cli.Connect());
  if (cli.json()) {
    // As WatchOperation answers, a line for each.
    ASSIGN_OR_RETURN(const v1::Operation operation,
                     client.Watch(flags.id, [&cli](const v1::Operation& now) {
                       cli.PrintEvent({{"operation", ToJson(now)}}, HasEnded(now));
                     }));
    return EndWith(cli, operation);
  }
  return FollowOperation(
      cli, flags.id, [&](Client::OnChange on_change) { return client.Watch(flags.id, on_change); });
}

absl::Status Wait(Cli& cli, const OperationFlags& flags) {
  ASSIGN_OR_RETURN(Client client, cli.Connect());
  ASSIGN_OR_RETURN(const v1::Operation operation,
                   client.Watch(flags.id, [](const v1::Operation&) {}));
  RETURN_IF_ERROR(cli.Answer(operation, OperationText(operation)));
  return EndWith(cli, operation);
}

// What was asked for is the success here.
absl::Status AwaitCancelled(Cli& cli, Client& client, const std::string& id) {
  ASSIGN_OR_RETURN(const v1::Operation operation, client.Watch(id, [](const v1::Operation&) {}));
  RETURN_IF_ERROR(cli.Answer(operation, OperationText(operation)));
  if (operation.state() == v1::OPERATION_STATE_CANCELLED) return absl::OkStatus();
  const absl::Status end = EndWith(cli, operation);
  if (!end.ok()) return end;
  return absl::FailedPreconditionError(absl::StrCat("operation ", id, ": expected it cancelled, ",
                                                    "found it ", StateName(operation.state())));
}

absl::Status Cancel(Cli& cli, const OperationFlags& flags) {
  ASSIGN_OR_RETURN(Client client, cli.Connect());
  RETURN_IF_ERROR(client.CancelOperation(flags.id, flags.reason));
  if (flags.wait) return AwaitCancelled(cli, client, flags.id);
  return cli.Answer({{"cancelling", flags.id}},
                    absl::StrCat("operation ", flags.id, " is being cancelled\n"));
}

}  // namespace

void AddOperationCommands(Cli& cli, CLI::App& app) {
  CLI::App& group = cli.AddGroup(app, "operation", "Shows, follows and cancels operations");
  const auto flags = std::make_shared<OperationFlags>();

  CLI::App& list = cli.AddCommand(group, "list", "Lists operations, newest first",
                                  "  crossmesh operation list --count 5\n"
                                  "  crossmesh operation list --watch\n");
  AddFlag(list, "-w,--watch", flags->watch, kWatchHelp);
  AddOption(list, "--count", flags->count, "At most so many").ShowDefault();
  cli.Run(list, [&cli, flags] { return ListOperations(cli, *flags); });

  CLI::App& show = cli.AddCommand(group, "show", "Shows an operation as it is now",
                                  "  crossmesh operation show op-0123456789abcdef\n");
  cli.Run(show, [&cli, flags] { return Show(cli, *flags); });

  CLI::App& watch = cli.AddCommand(group, "watch", "Follows an operation to its end",
                                   "  crossmesh operation watch op-0123456789abcdef\n"
                                   "With --json it prints a line for every change, "
                                   "{\"operation\": ...}; the last one has the "
                                   "end.\n");
  cli.Run(watch, [&cli, flags] { return Watch(cli, *flags); });

  CLI::App& wait =
      cli.AddCommand(group, "wait",
                     "Waits for an operation's end without a word, and exits by what became "
                     "of it",
                     "  crossmesh operation wait op-0123456789abcdef --timeout 10m\n");
  cli.Run(wait, [&cli, flags] { return Wait(cli, *flags); });

  CLI::App& cancel = cli.AddCommand(group, "cancel", "Asks for an operation's end",
                                    "  crossmesh operation cancel op-0123456789abcdef\n");
  AddOption(cancel, "--reason", flags->reason, "For the report").ShowDefault();
  AddFlag(cancel, "--wait", flags->wait, "Until it has ended; an error when it committed first");
  cli.Run(cancel, [&cli, flags] { return Cancel(cli, *flags); });

  for (CLI::App* command : {&show, &watch, &wait, &cancel}) {
    AddOption(*command, "id", flags->id, "The operation's id").Required();
  }
  for (CLI::App* command : {&list, &show}) cli.AddOutputFlag(*command);
  for (CLI::App* command : {&list, &show, &watch, &wait, &cancel}) cli.AddControllerFlags(*command);
}

}  // namespace crossmesh
