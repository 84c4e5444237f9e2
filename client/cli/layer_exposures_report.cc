#include "client/cli/layer_exposures_report.h"

#include "common/base/format.h"
#include "common/base/table.h"

#include <algorithm>

#include <nlohmann/json.hpp>

namespace crossmesh {

std::string LayerExposuresText(const v1::LayerRunSummary& run) {
  const auto is_named = [](const v1::LayerRunSummary::Layer& layer) {
    return !layer.name().empty();
  };
  if (std::ranges::none_of(run.layers(), is_named)) return "";
  TextTable table({"LAYER", "COMPUTES>", "EXPOSED>", "HIDDEN>"});
  for (const v1::LayerRunSummary::Layer& layer : run.layers()) {
    table.AddRow({layer.name().empty() ? "of none" : layer.name(),
                  FormatSeconds(layer.op_seconds()), FormatSeconds(layer.exposed_seconds()),
                  FormatSeconds(layer.hidden_seconds())});
  }
  return table.ToString();
}

nlohmann::json LayerExposuresDocument(const v1::LayerRunSummary& run) {
  nlohmann::json document = nlohmann::json::array();
  for (const v1::LayerRunSummary::Layer& layer : run.layers()) {
    document.push_back({{"layer", layer.name()},
                        {"compute_seconds", layer.op_seconds()},
                        {"exposed_seconds", layer.exposed_seconds()},
                        {"hidden_seconds", layer.hidden_seconds()}});
  }
  return document;
}

}  // namespace crossmesh
