#include "client/cli/layers_picture.h"

#include "common/base/check.h"
#include "planner/parallelism/programs/grid_op.h"

#include <iterator>
#include <utility>
#include <vector>

#include <absl/strings/match.h>
#include <absl/strings/string_view.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

using nlohmann::json;

// By the end of a transfer's name.
struct Lane {
  absl::string_view name;
  std::vector<absl::string_view> ends;
};

const std::vector<Lane>& Lanes() {
  static const auto* const lanes = new std::vector<Lane>{
      {"weights", {"gather", "spread"}},
      {"gradients of weights", {"scatter", "reduce"}},
      {"gradients of activations", {"gradient_rows", "gradient_sum"}},
      {"activations", {"rows", "sum", "max"}},
      {"copies", {"data_sum", "vectors_of_c", "vectors_of_r"}},
      {"between stages", {"activations", "gradients"}},
  };
  return *lanes;
}

// The one with the longest end that fits.
size_t LaneOf(absl::string_view transfer) {
  size_t found = 0;
  size_t longest = 0;
  for (size_t lane = 0; lane < Lanes().size(); ++lane) {
    for (const absl::string_view end : Lanes()[lane].ends) {
      if (end.size() <= longest || !absl::EndsWith(transfer, end)) continue;
      found = lane;
      longest = end.size();
    }
  }
  return found;
}

// As the pipelines' pictures have them; "": what is none of a matrix's products.
absl::string_view ProductOf(const std::string& op) {
  const absl::StatusOr<GridOp> parsed = ParseGridOp(op);
  CHECK_OK(parsed);
  switch (parsed->kind) {
    case GridOpKind::kForward:
      return "F";
    case GridOpKind::kInputGradient:
    case GridOpKind::kBackward:
      return "I";
    case GridOpKind::kWeightGradient:
      return "W";
    default:
      return "";
  }
}

struct DrawnLane {
  json spans = json::array();
  double exposed = 0;
};

json Rank(const PlannedLayers& planned, RankIndex rank) {
  const LayerProgram& program = planned.program;
  json ops = json::array();
  for (size_t op = 0; op < program.ops.size(); ++op) {
    const TimeSpan& span = planned.run.ops[op];
    if (program.ops[op].rank != rank || span.end <= span.begin) continue;
    ops.push_back({ProductOf(program.ops[op].name), span.begin, span.end});
  }
  std::vector<DrawnLane> lanes(Lanes().size());
  for (size_t transfer = 0; transfer < program.transfers.size(); ++transfer) {
    if (program.from(program.transfers[transfer]) != rank) continue;
    DrawnLane& lane = lanes[LaneOf(program.transfers[transfer].name)];
    lane.exposed += planned.run.exposures[transfer].exposed;
    for (const TimeSpan& span : planned.run.messages[transfer]) {
      lane.spans.push_back({span.begin, span.end});
    }
  }
  json moving = json::array();
  for (size_t lane = 0; lane < lanes.size(); ++lane) {
    if (lanes[lane].spans.empty()) continue;
    moving.push_back({{"name", Lanes()[lane].name},
                      {"exposed", lanes[lane].exposed},
                      {"spans", std::move(lanes[lane].spans)}});
  }
  return {{"ops", std::move(ops)}, {"lanes", std::move(moving)}};
}

json Step(const DrawnLayers& drawn) {
  json ranks = json::array();
  for (RankIndex rank = 0; rank < std::ssize(drawn.planned->program.ranks); ++rank) {
    ranks.push_back(Rank(*drawn.planned, rank));
  }
  double exposed = 0;
  for (const LayerTimeline::Exposure& one : drawn.planned->run.exposures) exposed += one.exposed;
  return {{"title", drawn.title},
          {"seconds", drawn.planned->run.seconds},
          {"exposed", exposed},
          {"ranks", std::move(ranks)}};
}

}  // namespace

std::string LayersPicture(std::span<const DrawnLayers> drawn) {
  json steps = json::array();
  for (const DrawnLayers& one : drawn) steps.push_back(Step(one));
  return json{{"picture", "layers"}, {"steps", std::move(steps)}}.dump();
}

}  // namespace crossmesh
