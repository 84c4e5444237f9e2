#pragma once

#include "crossmesh/v1/reshard.pb.h"

#include <span>
#include <string>

#include <google/protobuf/repeated_ptr_field.h>

namespace crossmesh {

// What a plan comes to, for people: a line per figure.
std::string PlanSummaryText(const v1::PlanSummary& summary);

// One row per plan of the same request, and below them what the rates are.
std::string StrategyTable(std::span<const v1::PlanSummary> summaries);

// A line "WARNING: ..." for each.
std::string WarningLines(const google::protobuf::RepeatedPtrField<std::string>& warnings);

// "Rates are assumed: 12.5 GB/s per host and direction."; the plan's warnings when only some are;
// "" when all are described.
std::string RatesNote(const v1::PlanSummary& summary);

// A line for each broadcast group: what GPUs would take by relays and by broadcasts, and which they
// would use.
std::string BroadcastLines(const google::protobuf::RepeatedPtrField<v1::BroadcastGroup>& groups);
// What NCCL M2N would take, or why it cannot.
std::string M2nLine(const v1::M2nFigures& m2n);

// How many times the bound `seconds` are: "1.25x"; "-" where nothing has to cross the network.
std::string RatioToBound(double seconds, double bound_seconds);

}  // namespace crossmesh
