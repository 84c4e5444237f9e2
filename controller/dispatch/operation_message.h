// Parts of the API's message of an operation, from what is known of it.

#pragma once

#include "common/metrics/controller_metrics.h"
#include "controller/dispatch/operation_plan.h"
#include "controller/operation/operation_machine.h"
#include "crossmesh/v1/operation_service.pb.h"

#include <cstdint>
#include <span>

namespace crossmesh {

v1::OperationState ToProto(OperationState state);
// As metrics count it, of a state that is the last; but for the strategy.
ControllerMetrics::OperationFacts FactsOf(OperationState state, const v1::OperationReport& report);

// `plan`: null before there is one.
void SetReplicas(std::span<const OperationMachine::Replica> replicas, const OperationPlan* plan,
                 v1::Operation& operation);

// What the committed ones of the first attempt's replicas have received.
int64_t CommittedBytes(std::span<const OperationMachine::Replica> replicas,
                       const OperationPlan& plan);

// The links of the report's tasks that were busy for longer than the whole operation was predicted
// to take.
void AddSlowLinks(const OperationPlan& plan, v1::OperationReport& report);

}  // namespace crossmesh
