#pragma once

#include "client/cli/cli.h"
#include "client/cli/listing.h"
#include "client/client.h"
#include "crossmesh/v1/operation_service.pb.h"

#include <span>
#include <string>

#include <absl/functional/function_ref.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// An operation for people: state, replicas and, when it has ended, its report.
std::string OperationText(const v1::Operation& operation);

// A row for each operation.
Listing OperationListing(const Cli& cli, std::span<const v1::Operation> operations);

// Shows how far an operation is while `follow` follows it to its end, then what became of it. Its
// error is that of `follow`, or the operation's.
absl::Status FollowOperation(
    Cli& cli, const std::string& label,
    absl::FunctionRef<absl::StatusOr<v1::Operation>(Client::OnChange)> follow);

// The end of a command that followed this operation to its end: its outcome, with the exit code of
// its state.
absl::Status EndWith(Cli& cli, const v1::Operation& operation);

}  // namespace crossmesh
