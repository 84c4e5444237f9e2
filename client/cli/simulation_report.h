#pragma once

#include "common/plan/plan.h"
#include "planner/network/simulator.h"

#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

namespace crossmesh {

// What a simulated run of a plan came to, for people: time, bound, the `ports_max` ports that were
// busiest, and the critical chain, with chunks that follow one another on a hop in one line.
std::string SimulationText(const Plan& plan, const SimulatedTimeline& run, int64_t ports_max);

// The same for programs, with all ports.
nlohmann::json SimulationDocument(const Plan& plan, const SimulatedTimeline& run);

// The run in Chrome's trace event format (chrome://tracing, ui.perfetto.dev): a process per host, a
// row per NIC and direction, a slice per chunk, which a receiver has later than its sender by the
// latencies. Connections that share a NIC overlap in its row.
nlohmann::json SimulationTrace(const Plan& plan, const SimulatedTimeline& run);

}  // namespace crossmesh
