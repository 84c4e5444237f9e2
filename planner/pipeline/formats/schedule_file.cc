#include "planner/pipeline/formats/schedule_file.h"

#include "common/base/error_place.h"
#include "common/base/status_macros.h"
#include "common/mesh/json_reader.h"
#include "planner/pipeline/formats/placed_ops.h"
#include "planner/pipeline/order_proof.h"

#include <array>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_split.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr int64_t kVersion = 1;
constexpr std::array<absl::string_view, 5> kFileKeys = {"version", "microbatches", "stage_ranks",
                                                        "edges", "ranks"};
constexpr std::array<absl::string_view, 2> kEdgeKeys = {"from", "to"};

std::string PlaceInFile(RankIndex rank, size_t at) {
  return absl::StrCat("schedule file ranks[", rank, "], op ", at);
}

absl::Status CheckField(absl::string_view key, int64_t expected, int64_t found) {
  if (found == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("schedule file: expected \"", key, "\" to be ", expected, ", found ", found));
}

absl::StatusOr<std::vector<std::vector<Op>>> ReadRanks(const JsonFields& fields) {
  ASSIGN_OR_RETURN(const std::vector<std::string> rows, fields.Strings("ranks"));
  std::vector<std::vector<Op>> ranks;
  for (const std::string& row : rows) {
    std::vector<Op> ops;
    for (const absl::string_view word : absl::StrSplit(row, ' ')) {
      const std::string place = PlaceInFile(static_cast<RankIndex>(ranks.size()), ops.size());
      ASSIGN_OR_RETURN(ops.emplace_back(), At(place, ParseOp(word)));
    }
    ranks.push_back(std::move(ops));
  }
  return ranks;
}

absl::StatusOr<StageIndex> ReadStage(const JsonFields& fields, absl::string_view key,
                                     int32_t stages) {
  ASSIGN_OR_RETURN(const int64_t stage, fields.Integer(key));
  if (stage >= 0 && stage < stages) return static_cast<StageIndex>(stage);
  return absl::InvalidArgumentError(absl::StrCat(
      fields.where(), ": expected \"", key, "\" to be one of ", stages, " stages, found ", stage));
}

absl::StatusOr<std::vector<PipelineShape::Edge>> ReadEdges(const JsonFields& fields,
                                                           int32_t stages) {
  ASSIGN_OR_RETURN(const json* items, fields.Array("edges"));
  std::vector<PipelineShape::Edge> edges;
  for (const json& item : *items) {
    ASSIGN_OR_RETURN(
        const JsonFields edge,
        JsonFields::Of(item, absl::StrCat("schedule file edges[", edges.size(), "]"), kEdgeKeys));
    ASSIGN_OR_RETURN(const StageIndex from, ReadStage(edge, "from", stages));
    ASSIGN_OR_RETURN(const StageIndex to, ReadStage(edge, "to", stages));
    edges.push_back({from, to});
  }
  return edges;
}

absl::Status CheckStageRanks(const JsonFields& fields, const std::vector<RankIndex>& expected) {
  ASSIGN_OR_RETURN(const std::vector<int64_t> found, fields.Integers("stage_ranks"));
  if (std::vector<int64_t>(expected.begin(), expected.end()) == found) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("schedule file: expected \"stage_ranks\" to be those of the ops, ",
                   absl::StrJoin(expected, " "), ", found ", absl::StrJoin(found, " ")));
}

}  // namespace

absl::StatusOr<ScheduleFile> ParseScheduleFile(absl::string_view text) {
  ASSIGN_OR_RETURN(const json document, ParseJson("schedule file", text));
  ASSIGN_OR_RETURN(const JsonFields fields, JsonFields::Of(document, "schedule file", kFileKeys));
  ASSIGN_OR_RETURN(const int64_t version, fields.Integer("version"));
  RETURN_IF_ERROR(CheckField("version", kVersion, version));
  ASSIGN_OR_RETURN(std::vector<std::vector<Op>> ranks, ReadRanks(fields));
  ScheduleFile file;
  ASSIGN_OR_RETURN(file.schedule, ScheduleOfPlacedOps(std::move(ranks), PlaceInFile));
  ASSIGN_OR_RETURN(const int64_t microbatches, fields.Integer("microbatches"));
  RETURN_IF_ERROR(CheckField("microbatches", file.schedule.microbatches, microbatches));
  // What the file says besides its ops must agree with them, so that a file edited by hand is not
  // misread.
  file.shape.stage_ranks = StageRanks(file.schedule);
  RETURN_IF_ERROR(CheckStageRanks(fields, file.shape.stage_ranks));
  ASSIGN_OR_RETURN(file.shape.edges, ReadEdges(fields, file.schedule.stages));
  const PipelineProfile profile =
      FreeProfile(file.shape, static_cast<RankIndex>(file.schedule.ranks.size()));
  ASSIGN_OR_RETURN(const OpTable ops, OpTable::Create(file.schedule, profile));
  RETURN_IF_ERROR(ProveOrder(ops));
  return file;
}

absl::StatusOr<std::string> ToScheduleFile(const OpTable& ops) {
  RETURN_IF_ERROR(ProveOrder(ops));
  const PipelineShape shape = ShapeOf(ops.profile());
  ordered_json edges = ordered_json::array();
  for (const PipelineShape::Edge& edge : shape.edges) {
    edges.push_back({{"from", edge.from}, {"to", edge.to}});
  }
  std::vector<std::string> ranks = absl::StrSplit(ToString(ops.schedule()), '\n');
  // What ToString writes ends with a line break, after which nothing comes.
  ranks.pop_back();
  const ordered_json document = {{"version", kVersion},
                                 {"microbatches", ops.schedule().microbatches},
                                 {"stage_ranks", shape.stage_ranks},
                                 {"edges", std::move(edges)},
                                 {"ranks", std::move(ranks)}};
  return document.dump(2) + "\n";
}

}  // namespace crossmesh
