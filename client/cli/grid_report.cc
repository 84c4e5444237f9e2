#include "client/cli/grid_report.h"

#include "client/cli/grid_products.h"
#include "client/cli/report_text.h"
#include "common/base/count_text.h"
#include "common/base/format.h"
#include "common/base/table.h"
#include "planner/parallelism/schedule_run.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

std::string GridsTable(const GridRanking& ranking, int64_t top) {
  TextTable table({"GRID", "MICROBATCH>", "STEP>", "COMPUTE>", "BUBBLE>", "EXPOSED>", "HIDDEN>",
                   "SENT>", "MEMORY>", "EXPOSED BY AXIS"});
  for (const RankedGrid& grid : ranking.feasible) {
    if (static_cast<int64_t>(table.row_count()) == top) break;
    const StepPrice& price = grid.price;
    table.AddRow({ToString(grid.shape.grid), absl::StrCat(grid.shape.microbatch),
                  FormatSeconds(grid.seconds),
                  FormatSeconds(price.compute_seconds + price.slowdown_seconds),
                  FormatSeconds(price.bubble_seconds), FormatSeconds(price.exposed()),
                  FormatSeconds(SumOf(price.hidden_seconds)), BytesText(SumOf(price.wire_bytes)),
                  BytesText(grid.memory_bytes), ExposedByAxis(price)});
  }
  return table.ToString();
}

std::string AxesTable(const GridRequest& request, const RankedGrid& grid) {
  TextTable table({"AXIS", "SIZE>", "INSIDE>", "RATE>", "SOURCE", "SENT>", "EXPOSED>", "HIDDEN>"});
  const Grid& sizes = grid.shape.grid;
  const PerAxis<int64_t> inner = InnerSizes(sizes, request.step.training().order);
  for (const GridAxis axis : request.step.training().order) {
    if (sizes[axis] == 1) continue;
    const AxisRate& rate = request.step.RateOf(sizes, axis);
    table.AddRow(
        {std::string(GridAxisName(axis)), absl::StrCat(sizes[axis]), absl::StrCat(inner[axis]),
         FormatRate(rate.bytes_per_second()), std::string(RateSourceName(rate.source())),
         BytesText(grid.price.wire_bytes[axis]), FormatSeconds(grid.price.exposed_seconds[axis]),
         FormatSeconds(grid.price.hidden_seconds[axis])});
  }
  return table.row_count() == 0 ? "" : table.ToString();
}

// The first grid that each rule refuses; of memory the one that needs least.
const RefusedGrid* ExampleOf(const GridRanking& ranking, GridRule rule) {
  if (rule == GridRule::kMemory) return ranking.LeastMemory();
  const auto found = std::ranges::find(ranking.refused, rule, &RefusedGrid::rule);
  return found == ranking.refused.end() ? nullptr : &*found;
}

std::string RefusedTable(const GridRequest& request, const GridRanking& ranking,
                         const GridRankingView& view) {
  const std::vector<int64_t> counts = ranking.CountsByRule();
  TextTable table({"REFUSED BY", "GRIDS>", "FOR EXAMPLE", "BECAUSE"});
  for (int i = 0; i < kGridRuleCount; ++i) {
    const auto rule = static_cast<GridRule>(i);
    const RefusedGrid* const example = ExampleOf(ranking, rule);
    if (example == nullptr) continue;
    table.AddRow({std::string(GridRuleName(rule)), absl::StrCat(counts[i]), ToString(example->grid),
                  ExplainRefusal(request.step, *example, ranking.memory_bytes_max)});
  }
  if (table.row_count() == 0) return "";
  std::string text = absl::StrCat("\n", table.ToString());
  if (!view.refused) return text;
  TextTable all({"GRID", "REFUSED BY", "BECAUSE"});
  for (const RefusedGrid& refused : ranking.refused) {
    if (static_cast<int64_t>(all.row_count()) == view.top) break;
    all.AddRow({ToString(refused.grid), std::string(GridRuleName(refused.rule)),
                ExplainRefusal(request.step, refused, ranking.memory_bytes_max)});
  }
  return absl::StrCat(text, "\n", all.ToString());
}

std::string DeviceText(const DeviceProfile& device) {
  return absl::StrFormat("%s, %.0f Tflop/s of which products reach %.2f, %s", device.name,
                         device.flops_per_second / 1e12, device.product_ceiling,
                         Bytes(device.memory_bytes));
}

std::string SlowdownText(const DeviceProfile& device) {
  const bool is_assumed = device.overlap_slowdown == DeviceProfile().overlap_slowdown;
  return absl::StrCat("what computes beside collectives takes ", device.overlap_slowdown,
                      " times as long, ", is_assumed ? "assumed" : "given");
}

std::string CollectivesTable(const GridRequest& request, const RankedGrid& grid) {
  TextTable table({"PASS", "OF", "WHAT", "COLLECTIVE", "AXIS", "MESSAGE>", "TIMES>", "EACH>",
                   "EXPOSED>", "HIDDEN BY"});
  for (const CollectiveUse& use : request.step.Collectives(grid.shape)) {
    table.AddRow({std::string(use.pass), std::string(use.object), std::string(use.what),
                  std::string(CollectiveOpName(use.op)), std::string(GridAxisName(use.axis)),
                  BytesText(use.message_bytes), absl::StrFormat("%.0f", use.count),
                  FormatSeconds(use.seconds), FormatSeconds(use.seconds - use.hidden_seconds),
                  use.hidden_by.empty() ? "-" : std::string(use.hidden_by)});
  }
  return table.row_count() == 0 ? "" : absl::StrCat("\n", table.ToString());
}

// Nothing where none are deferred.
std::string PendingScattersLine(const GridRequest& request, const RankedGrid& grid) {
  const Training& training = request.step.training();
  if (grid.shape.grid.z() == 1 || !training.overlaps.weight_gradients) return "";
  return ReportLine("scatters", training.pending_scatters, " of each matrix may be pending, ",
                    request.chooses_scatters ? "at least; programs choose (--by-layer)" : "given");
}

// What the schedule makes of equal stages, op by op.
std::optional<ScheduleRun> SimulatedRun(const GridRequest& request, const RankedGrid& grid) {
  if (grid.shape.grid.pipeline() == 1) return std::nullopt;
  const absl::StatusOr<ScheduleRun> run = RunSchedule(
      GridScheduleName(request.step.training().schedule), request.step.PipelineOf(grid.shape));
  return run.ok() ? std::optional(*run) : std::nullopt;
}

nlohmann::json AxesDocument(const GridRequest& request, const RankedGrid& grid) {
  nlohmann::json axes = nlohmann::json::object();
  const Grid& sizes = grid.shape.grid;
  const PerAxis<int64_t> inner = InnerSizes(sizes, request.step.training().order);
  for (const GridAxis axis : kGridAxes) {
    if (sizes[axis] == 1) continue;
    const AxisRate& rate = request.step.RateOf(sizes, axis);
    axes[std::string(GridAxisName(axis))] = {{"size", sizes[axis]},
                                             {"inside", inner[axis]},
                                             {"bytes_per_second", rate.bytes_per_second()},
                                             {"source", std::string(RateSourceName(rate.source()))},
                                             {"sent_bytes", grid.price.wire_bytes[axis]},
                                             {"exposed_seconds", grid.price.exposed_seconds[axis]},
                                             {"hidden_seconds", grid.price.hidden_seconds[axis]}};
  }
  return axes;
}

nlohmann::json GridDocument(const GridRequest& request, const RankedGrid& grid) {
  nlohmann::json parts;
  for (const StepPart& part : kStepParts) parts[std::string(part.name)] = part.seconds(grid.price);
  return {{"grid", ToString(grid.shape.grid)},       {"microbatch", grid.shape.microbatch},
          {"microbatches", grid.shape.microbatches}, {"seconds", grid.seconds},
          {"parts_seconds", std::move(parts)},       {"memory_bytes", grid.memory_bytes},
          {"axes", AxesDocument(request, grid)}};
}

nlohmann::json RefusalDocument(const GridRequest& request, const GridRanking& ranking,
                               const RefusedGrid& refused) {
  return {{"grid", ToString(refused.grid)},
          {"rule", std::string(GridRuleName(refused.rule))},
          {"because", ExplainRefusal(request.step, refused, ranking.memory_bytes_max)}};
}

std::vector<std::string> ColumnsOf(absl::string_view first, std::span<const RankedGrid> grids) {
  std::vector<std::string> columns = {std::string(first)};
  for (const RankedGrid& grid : grids) columns.push_back(ToString(grid.shape.grid) + ">");
  return columns;
}

// A row of one value for each grid.
template <typename Text>
void AddRow(absl::string_view name, std::span<const RankedGrid> grids, const Text& text,
            TextTable& table) {
  std::vector<std::string> cells = {std::string(name)};
  for (const RankedGrid& grid : grids) cells.push_back(text(grid));
  table.AddRow(std::move(cells));
}

}  // namespace

std::string BytesText(double bytes) { return Bytes(static_cast<int64_t>(bytes)); }

double SumOf(const PerAxis<double>& values) {
  double sum = 0;
  for (const double value : values.values) sum += value;
  return sum;
}

std::string ExposedByAxis(const StepPrice& price) {
  std::vector<std::string> parts;
  for (const GridAxis axis : kGridAxes) {
    const double seconds = price.exposed_seconds[axis];
    if (seconds > 0) parts.push_back(absl::StrCat(GridAxisName(axis), " ", FormatSeconds(seconds)));
  }
  return parts.empty() ? "-" : absl::StrJoin(parts, ", ");
}

std::string GridRankingText(const GridRequest& request, const GridRanking& ranking,
                            const GridRankingView& view) {
  const size_t grids = ranking.feasible.size() + ranking.refused.size();
  const std::string tables = ranking.feasible.empty()
                                 ? ""
                                 : absl::StrCat(GridsTable(ranking, view.top), "\n",
                                                AxesTable(request, ranking.feasible.front()), "\n");
  return absl::StrCat(
      tables,
      ReportLine("grids", ranking.feasible.size(), " of ", grids,
                 ranking.feasible.size() == 1 ? " keeps" : " keep", " to all rules"),
      ReportLine("network", request.network),
      ReportLine("device", DeviceText(request.step.device())),
      RefusedTable(request, ranking, view));
}

nlohmann::json GridRankingDocument(const GridRequest& request, const GridRanking& ranking,
                                   const GridRankingView& view) {
  nlohmann::json document = {{"network", request.network},
                             {"feasible", ranking.feasible.size()},
                             {"pending_scatters", request.step.training().pending_scatters},
                             {"grids", nlohmann::json::array()},
                             {"refused", nlohmann::json::array()}};
  for (const RankedGrid& grid : ranking.feasible) {
    if (static_cast<int64_t>(document["grids"].size()) == view.top) break;
    document["grids"].push_back(GridDocument(request, grid));
  }
  const std::vector<int64_t> counts = ranking.CountsByRule();
  for (int i = 0; i < kGridRuleCount; ++i) {
    const RefusedGrid* const example = ExampleOf(ranking, static_cast<GridRule>(i));
    if (example == nullptr) continue;
    nlohmann::json entry = RefusalDocument(request, ranking, *example);
    entry["count"] = counts[i];
    document["refused"].push_back(std::move(entry));
  }
  if (!view.refused) return document;
  document["refused_grids"] = nlohmann::json::array();
  for (const RefusedGrid& refused : ranking.refused) {
    if (static_cast<int64_t>(document["refused_grids"].size()) == view.top) break;
    document["refused_grids"].push_back(RefusalDocument(request, ranking, refused));
  }
  return document;
}

std::string GridExplanation(const GridRequest& request, const RankedGrid& grid) {
  TextTable parts({"PART OF THE STEP", "TIME>", "SHARE>"});
  for (const StepPart& part : kStepParts) {
    const double seconds = part.seconds(grid.price);
    parts.AddRow({std::string(part.name), FormatSeconds(seconds),
                  absl::StrFormat("%.1f %%", 100 * seconds / grid.seconds)});
  }
  const std::string axes = AxesTable(request, grid);
  std::string text = absl::StrCat(
      ReportLine("grid", ToString(grid.shape.grid), ", ",
                 ActivationFormName(request.step.training().activations), " activations"),
      ReportLine("step", FormatSeconds(grid.seconds), ", ",
                 CountText(grid.shape.microbatches, "microbatch", "microbatches"), " of ",
                 grid.shape.microbatch),
      ReportLine("network", request.network),
      ReportLine("device", DeviceText(request.step.device())),
      ReportLine("overlap", SlowdownText(request.step.device())),
      PendingScattersLine(request, grid));
  if (const std::optional<ScheduleRun> run = SimulatedRun(request, grid)) {
    absl::StrAppend(&text,
                    ReportLine("schedule", GridScheduleName(request.step.training().schedule), ", ",
                               FormatSeconds(run->seconds), " simulated op by op, ",
                               FormatSeconds(PipelineSeconds(request.step.PipelineOf(grid.shape))),
                               " by its closed form, without logits and what ends the step"));
  }
  const RankedGrid* const one = &grid;
  return absl::StrCat(text, "\n", parts.ToString(), axes.empty() ? "" : "\n", axes, "\n",
                      GridProductsTable(request.step, grid.shape), CollectivesTable(request, grid),
                      "\n", GridMemoryText(request, std::span(one, 1)));
}

nlohmann::json GridExplanationDocument(const GridRequest& request, const RankedGrid& grid) {
  nlohmann::json document = GridDocument(request, grid);
  document["network"] = request.network;
  document["overlap_slowdown"] = request.step.device().overlap_slowdown;
  document["products"] = GridProductsDocument(request.step, grid.shape);
  document["collectives"] = nlohmann::json::array();
  for (const CollectiveUse& use : request.step.Collectives(grid.shape)) {
    document["collectives"].push_back({{"pass", std::string(use.pass)},
                                       {"object", std::string(use.object)},
                                       {"what", std::string(use.what)},
                                       {"collective", std::string(CollectiveOpName(use.op))},
                                       {"axis", std::string(GridAxisName(use.axis))},
                                       {"message_bytes", use.message_bytes},
                                       {"count", use.count},
                                       {"seconds", use.seconds},
                                       {"hidden_seconds", use.hidden_seconds},
                                       {"hidden_by", std::string(use.hidden_by)}});
  }
  const RankedGrid* const one = &grid;
  document["memory"] = GridMemoryDocument(request, std::span(one, 1))["grids"][0];
  if (const std::optional<ScheduleRun> run = SimulatedRun(request, grid)) {
    document["simulated_schedule_seconds"] = run->seconds;
  }
  return document;
}

std::string GridComparisonText(std::span<const RankedGrid> grids) {
  TextTable table(ColumnsOf("", grids));
  AddRow("step", grids, [](const RankedGrid& g) { return FormatSeconds(g.seconds); }, table);
  AddRow(
      "over the first", grids,
      [&](const RankedGrid& g) {
        return absl::StrFormat("%.3f", g.seconds / grids.front().seconds);
      },
      table);
  AddRow(
      "microbatch", grids, [](const RankedGrid& g) { return absl::StrCat(g.shape.microbatch); },
      table);
  for (const StepPart& part : kStepParts) {
    AddRow(
        part.name, grids, [&](const RankedGrid& g) { return FormatSeconds(part.seconds(g.price)); },
        table);
  }
  for (const GridAxis axis : kGridAxes) {
    const auto used = [axis](const RankedGrid& g) { return g.shape.grid[axis] > 1; };
    if (std::ranges::none_of(grids, used)) continue;
    const std::string name(GridAxisName(axis));
    AddRow(
        name + " exposed", grids,
        [&](const RankedGrid& g) {
          return used(g) ? FormatSeconds(g.price.exposed_seconds[axis]) : "-";
        },
        table);
    AddRow(
        name + " hidden", grids,
        [&](const RankedGrid& g) {
          return used(g) ? FormatSeconds(g.price.hidden_seconds[axis]) : "-";
        },
        table);
    AddRow(
        name + " sent", grids,
        [&](const RankedGrid& g) { return used(g) ? BytesText(g.price.wire_bytes[axis]) : "-"; },
        table);
  }
  AddRow("memory", grids, [](const RankedGrid& g) { return BytesText(g.memory_bytes); }, table);
  return table.ToString();
}

nlohmann::json GridComparisonDocument(const GridRequest& request,
                                      std::span<const RankedGrid> grids) {
  nlohmann::json document = {{"network", request.network}, {"grids", nlohmann::json::array()}};
  for (const RankedGrid& grid : grids) document["grids"].push_back(GridDocument(request, grid));
  return document;
}

std::string GridMemoryText(const GridRequest& request, std::span<const RankedGrid> grids) {
  TextTable table(ColumnsOf("MEMORY OF", grids));
  for (const MemoryTermField& field : kMemoryTermFields) {
    AddRow(
        field.name, grids,
        [&](const RankedGrid& g) { return BytesText(request.step.Memory(g.shape).*field.term); },
        table);
  }
  AddRow("all", grids, [](const RankedGrid& g) { return BytesText(g.memory_bytes); }, table);
  const auto most = static_cast<double>(request.step.device().memory_bytes);
  AddRow(
      "of the device", grids,
      [most](const RankedGrid& g) {
        return absl::StrFormat("%.1f %%%s", 100 * g.memory_bytes / most,
                               g.memory_bytes > most ? ", does not fit" : "");
      },
      table);
  std::string text = table.ToString();
  for (const RankedGrid& grid : grids) {
    if (grid.memory_bytes <= most) continue;
    const RefusedGrid refused{grid.shape.grid, GridRule::kMemory, grid.shape.microbatch,
                              grid.memory_bytes};
    absl::StrAppend(&text, "\n", ToString(grid.shape.grid), " ",
                    ExplainRefusal(request.step, refused, request.step.device().memory_bytes),
                    "\n");
  }
  return text;
}

nlohmann::json GridMemoryDocument(const GridRequest& request, std::span<const RankedGrid> grids) {
  nlohmann::json document = {{"memory_bytes_max", request.step.device().memory_bytes},
                             {"pending_scatters", request.step.training().pending_scatters},
                             {"grids", nlohmann::json::array()}};
  for (const RankedGrid& grid : grids) {
    const MemoryTerms terms = request.step.Memory(grid.shape);
    nlohmann::json entry = {{"grid", ToString(grid.shape.grid)},
                            {"microbatch", grid.shape.microbatch},
                            {"bytes", grid.memory_bytes}};
    for (const MemoryTermField& field : kMemoryTermFields) {
      entry["terms"][std::string(field.name)] = terms.*field.term;
    }
    document["grids"].push_back(std::move(entry));
  }
  return document;
}

}  // namespace crossmesh
