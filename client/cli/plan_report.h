#pragma once

#include "crossmesh/v1/reshard.pb.h"

#include <span>
#include <string>

namespace crossmesh {

// What a plan comes to, for people: a line per figure.
std::string PlanSummaryText(const v1::PlanSummary& summary);

// One row per plan of the same request, and below what the rates are.
std::string StrategyTable(std::span<const v1::PlanSummary> summaries);

// "Rates are assumed: 12.5 GB/s per host and direction." or "" when all are described.
std::string RatesNote(const v1::PlanSummary& summary);

// How often the bound `seconds` are: "1.25x"; "-" where nothing has to cross the network.
std::string RatioToBound(double seconds, double bound_seconds);

}  // namespace crossmesh
