#pragma once

#include "planner/parallelism/step_model.h"

#include <string>

#include <nlohmann/json_fwd.hpp>

namespace crossmesh {

// The products of a block and of the logits on a device of a grid: sizes, time and rate of each
// mode, and where the rate comes from: measured, interpolated, the device's law, or that scaled to
// the nearest size of the table. Products that are alike in all three modes have one row, of all.
std::string GridProductsTable(const StepModel& step, const GridShape& shape);
nlohmann::json GridProductsDocument(const StepModel& step, const GridShape& shape);

}  // namespace crossmesh
