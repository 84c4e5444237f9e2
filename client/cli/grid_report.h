#pragma once

#include "client/cli/grid_flags.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <absl/strings/string_view.h>
#include <nlohmann/json_fwd.hpp>

namespace crossmesh {

// The parts of a step that add up to it.
struct StepPart {
  absl::string_view name;
  double (*seconds)(const StepPrice& price);
};
inline constexpr StepPart kStepParts[] = {
    {"compute", [](const StepPrice& p) { return p.compute_seconds; }},
    {"slowed by overlap", [](const StepPrice& p) { return p.slowdown_seconds; }},
    {"exposed", [](const StepPrice& p) { return p.exposed(); }},
    {"bubble", [](const StepPrice& p) { return p.bubble_seconds; }},
    {"logits", [](const StepPrice& p) { return p.logits_seconds; }},
    {"optimizer", [](const StepPrice& p) { return p.optimizer_seconds; }}};

// What a model counts in bytes, and what it says of each axis, of all together.
std::string BytesText(double bytes);
double SumOf(const PerAxis<double>& values);
// "r 12.0 ms, z 3.4 ms": axes of which something shows.
std::string ExposedByAxis(const StepPrice& price);

// How much of a ranking is shown.
struct GridRankingView {
  int64_t top = 10;
  bool refused = false;  // each of the first ones by itself, too
};

// The first grids with what their steps take; the axes of the best one with their rates; how many
// were refused, by rule, with an example and its nearest fix.
std::string GridRankingText(const GridRequest& request, const GridRanking& ranking,
                            const GridRankingView& view);
nlohmann::json GridRankingDocument(const GridRequest& request, const GridRanking& ranking,
                                   const GridRankingView& view);

// One grid: where its step's time goes, every product and every collective with what hides it,
// axes, memory, and what the schedule takes when it is simulated.
std::string GridExplanation(const GridRequest& request, const RankedGrid& grid);
nlohmann::json GridExplanationDocument(const GridRequest& request, const RankedGrid& grid);

// Several grids, a column for each.
std::string GridComparisonText(std::span<const RankedGrid> grids);
nlohmann::json GridComparisonDocument(const GridRequest& request,
                                      std::span<const RankedGrid> grids);

// Memory term by term, a column for each grid, and whether it fits.
std::string GridMemoryText(const GridRequest& request, std::span<const RankedGrid> grids);
nlohmann::json GridMemoryDocument(const GridRequest& request, std::span<const RankedGrid> grids);

}  // namespace crossmesh
