// What is stored of an operation for the controller that may have to take it up.

#pragma once

#include "crossmesh/stored/v1/operation.pb.h"
#include "crossmesh/v1/execution_service.pb.h"
#include "crossmesh/v1/operation_service.pb.h"

#include <cstdint>
#include <span>
#include <vector>

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

struct LeftOperation;
struct OperationAttempt;
struct OperationPlan;
struct WorkerShare;

// Of the present attempt, the last one, whose tasks are of `shares`, and of those before it.
stored::v1::OperationResumption MakeResumption(std::span<const OperationAttempt> attempts,
                                               const std::vector<WorkerShare>& shares,
                                               const OperationPlan& plan);

// Without attempts when there was no plan yet. DataLoss, naming the operation: it does not parse,
// or does not fit what was shown of it.
absl::StatusOr<stored::v1::OperationResumption> ParseResumption(const v1::Operation& shown,
                                                                absl::string_view bytes);

// Of one that ParseResumption has checked.
OperationPlan PlanOf(const v1::Operation& shown, const stored::v1::OperationResumption& resumption);
LeftOperation LeftOf(const v1::Operation& shown, const stored::v1::OperationResumption& resumption);
// What adopts the task of this worker in an attempt, for the controller of `epoch`.
v1::ExecuteRequest::Adopt AdoptionOf(const stored::v1::OperationResumption& resumption,
                                     uint32_t attempt,
                                     const stored::v1::OperationResumption::Worker& worker);

}  // namespace crossmesh
