#include "client/cli/layer_grids_report.h"

#include "client/cli/grid_report.h"
#include "client/cli/report_text.h"
#include "common/base/count_text.h"
#include "common/base/format.h"
#include "common/base/table.h"

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

std::string StepsTable(const LayerGridsPrice& price) {
  TextTable table({"PART OF THE STEP", "TIME>", "SHARE>"});
  const auto add = [&](absl::string_view name, double seconds) {
    table.AddRow({std::string(name), FormatSeconds(seconds),
                  absl::StrFormat("%.1f %%", 100 * seconds / price.seconds())});
  };
  for (const StepPart& part : kStepParts) add(part.name, part.seconds(price.step));
  add("joints", price.joint_seconds());
  return table.ToString();
}

// "4 attention, 4 mlp, logits".
std::string PartsText(const LayerGridsPrice& price, size_t grid) {
  std::map<ModelPart, int64_t> counts;
  for (size_t place = 0; place < price.parts.places.size(); ++place) {
    if (price.parts.grid_of[place] == static_cast<int32_t>(grid)) {
      ++counts[price.parts.places[place].part];
    }
  }
  std::vector<std::string> texts;
  for (const auto& [part, count] : counts) {
    const absl::string_view name = ModelPartName(part);
    texts.push_back(part == ModelPart::kLogits ? std::string(name)
                                               : absl::StrCat(count, " ", name));
  }
  return absl::StrJoin(texts, ", ");
}

std::string GridsOfLayersTable(const LayerGridsPrice& price) {
  TextTable table(
      {"GRID", "OF", "MICROBATCH>", "COMPUTE>", "EXPOSED>", "HIDDEN>", "SENT>", "EXPOSED BY AXIS"});
  for (size_t grid = 0; grid < price.shapes.size(); ++grid) {
    const StepPrice& of = price.of_grid[grid];
    table.AddRow({ToString(price.shapes[grid].grid), PartsText(price, grid),
                  absl::StrCat(price.shapes[grid].microbatch),
                  FormatSeconds(of.compute_seconds + of.slowdown_seconds),
                  FormatSeconds(of.exposed()), FormatSeconds(SumOf(of.hidden_seconds)),
                  BytesText(SumOf(of.wire_bytes)), ExposedByAxis(of)});
  }
  return table.ToString();
}

std::string StepsText(const JointMove& move) {
  return move.steps.empty() ? "-" : absl::StrJoin(move.steps, ", ");
}

std::string JointsTable(const LayerGridsPrice& price) {
  if (price.joints.empty()) return "";
  TextTable table({"JOINT BEFORE", "FROM", "TO", "FORWARD", "EACH>", "RECEIVED>", "BACKWARD",
                   "EACH>", "RECEIVED>", "TIMES>", "OF THE STEP>"});
  for (const JointPrice& joint : price.joints) {
    table.AddRow({ToString(joint.place), ToString(joint.from), ToString(joint.to),
                  StepsText(joint.forward), FormatSeconds(joint.forward.seconds),
                  Bytes(joint.forward.bytes), StepsText(joint.backward),
                  FormatSeconds(joint.backward.seconds), Bytes(joint.backward.bytes),
                  absl::StrCat(joint.messages), FormatSeconds(joint.seconds())});
  }
  return absl::StrCat("\n", table.ToString());
}

using Prices = std::span<const LayerGridsPrice>;

// A column for each.
TextTable ColumnsOf(absl::string_view first, Prices prices) {
  std::vector<std::string> columns = {std::string(first)};
  for (const LayerGridsPrice& price : prices) columns.push_back(ToString(price.grids) + ">");
  return TextTable(columns);
}

template <typename Text>
void AddPriceRow(absl::string_view name, Prices prices, const Text& text, TextTable& table) {
  std::vector<std::string> cells = {std::string(name)};
  for (const LayerGridsPrice& price : prices) cells.push_back(text(price));
  table.AddRow(std::move(cells));
}

nlohmann::json MemoryDocument(const LayerGridsPrice& price) {
  nlohmann::json memory;
  for (const MemoryTermField& field : kMemoryTermFields) {
    memory[std::string(field.name)] = price.memory.*field.term;
  }
  memory["joints"] = price.joint_bytes;
  return memory;
}

nlohmann::json MoveDocument(const JointMove& move) {
  return {{"steps", move.steps}, {"seconds", move.seconds}, {"received_bytes", move.bytes}};
}

nlohmann::json JointsDocument(const LayerGridsPrice& price) {
  nlohmann::json document = nlohmann::json::array();
  for (const JointPrice& joint : price.joints) {
    document.push_back({{"before", ToString(joint.place)},
                        {"from", ToString(joint.from)},
                        {"to", ToString(joint.to)},
                        {"forward", MoveDocument(joint.forward)},
                        {"backward", MoveDocument(joint.backward)},
                        {"messages", joint.messages},
                        {"seconds", joint.seconds()}});
  }
  return document;
}

nlohmann::json PerGridDocument(const LayerGridsPrice& price) {
  nlohmann::json document = nlohmann::json::array();
  for (size_t grid = 0; grid < price.shapes.size(); ++grid) {
    const StepPrice& of = price.of_grid[grid];
    document.push_back({{"grid", ToString(price.shapes[grid].grid)},
                        {"of", PartsText(price, grid)},
                        {"microbatch", price.shapes[grid].microbatch},
                        {"compute_seconds", of.compute_seconds + of.slowdown_seconds},
                        {"exposed_seconds", of.exposed()},
                        {"hidden_seconds", SumOf(of.hidden_seconds)},
                        {"sent_bytes", SumOf(of.wire_bytes)}});
  }
  return document;
}

}  // namespace

std::string LayerGridsExplanation(const GridRequest& request, const LayerGridsPrice& price) {
  return absl::StrCat(
      ReportLine("grid", ToString(price.grids), ", ",
                 ActivationFormName(request.step.training().activations), " activations"),
      ReportLine("step", FormatSeconds(price.seconds()), ", ",
                 CountText(price.shapes.front().microbatches, "microbatch", "microbatches")),
      ReportLine("network", request.network), "\n", StepsTable(price), "\n",
      GridsOfLayersTable(price), JointsTable(price), "\n",
      LayerGridsMemoryText(request, std::span(&price, 1)));
}

std::string LayerGridsComparisonText(Prices prices) {
  TextTable table = ColumnsOf("", prices);
  const auto add = [&](absl::string_view name, const auto& text) {
    AddPriceRow(name, prices, text, table);
  };
  add("step", [](const LayerGridsPrice& of) { return FormatSeconds(of.seconds()); });
  add("over the first", [&](const LayerGridsPrice& of) {
    return absl::StrFormat("%.3f", of.seconds() / prices.front().seconds());
  });
  add("microbatches",
      [](const LayerGridsPrice& of) { return absl::StrCat(of.shapes.front().microbatches); });
  for (const StepPart& part : kStepParts) {
    add(part.name, [&](const LayerGridsPrice& of) { return FormatSeconds(part.seconds(of.step)); });
  }
  add("joints", [](const LayerGridsPrice& of) { return FormatSeconds(of.joint_seconds()); });
  add("memory", [](const LayerGridsPrice& of) { return BytesText(of.memory_bytes()); });
  return table.ToString();
}

std::string LayerGridsMemoryText(const GridRequest& request, Prices prices) {
  TextTable table = ColumnsOf("MEMORY OF", prices);
  const auto add = [&](absl::string_view name, const auto& text) {
    AddPriceRow(name, prices, text, table);
  };
  for (const MemoryTermField& field : kMemoryTermFields) {
    add(field.name, [&](const LayerGridsPrice& of) { return BytesText(of.memory.*field.term); });
  }
  add("joints", [](const LayerGridsPrice& of) { return BytesText(of.joint_bytes); });
  add("all", [](const LayerGridsPrice& of) { return BytesText(of.memory_bytes()); });
  const auto most = static_cast<double>(request.step.device().memory_bytes);
  add("of the device", [most](const LayerGridsPrice& of) {
    return absl::StrFormat("%.1f %%%s", 100 * of.memory_bytes() / most,
                           of.memory_bytes() > most ? ", does not fit" : "");
  });
  return table.ToString();
}

nlohmann::json LayerGridsDocument(const GridRequest& request, const LayerGridsPrice& price) {
  nlohmann::json parts;
  for (const StepPart& part : kStepParts) parts[std::string(part.name)] = part.seconds(price.step);
  parts["joints"] = price.joint_seconds();
  return {{"grid", ToString(price.grids)},
          {"network", request.network},
          {"microbatches", price.shapes.front().microbatches},
          {"seconds", price.seconds()},
          {"parts_seconds", std::move(parts)},
          {"memory_bytes", price.memory_bytes()},
          {"memory", MemoryDocument(price)},
          {"grids", PerGridDocument(price)},
          {"joints", JointsDocument(price)}};
}

nlohmann::json LayerGridsDocuments(const GridRequest& request, Prices prices) {
  nlohmann::json document = {{"memory_bytes_max", request.step.device().memory_bytes},
                             {"grids", nlohmann::json::array()}};
  for (const LayerGridsPrice& price : prices) {
    document["grids"].push_back(LayerGridsDocument(request, price));
  }
  return document;
}

}  // namespace crossmesh
