#pragma once

#include "client/drawing/drawn_plan.h"

#include <string>

namespace crossmesh {

// A picture of a plan as SVG text, 1,000 pixels wide: above, hosts with their NICs and the routes
// between them; below, what passes each port over time, with the critical chain and the bound. Big
// plans are cut down to the hosts, routes and ports with most to do, with a sentence that says so.
// Equal plans give equal pictures. The run must have kept its transfers.
//
// Cost: transfers and hops; the text has some hundred kilobytes at most.
std::string DrawPlan(const SimulatedPlan& simulated);

}  // namespace crossmesh
