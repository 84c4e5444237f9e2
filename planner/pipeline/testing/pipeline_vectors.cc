#include "planner/pipeline/testing/pipeline_vectors.h"

#include "common/base/check.h"
#include "common/testing/paths.h"

#include <algorithm>
#include <fstream>

namespace crossmesh {
namespace {

using Json = nlohmann::json;

const Json& File() {
  static const auto& file =
      *new Json(Json::parse(std::ifstream(SourcePath("tests/data/pipeline_vectors.json"))));
  return file;
}

TransferModel ModelOf(const std::string& name) {
  const auto found = std::ranges::find(kAllTransferModels, name, [](TransferModel model) {
    return std::string(TransferModelName(model));
  });
  CHECK(found != kAllTransferModels.end()) << name;
  return *found;
}

std::vector<PipelineVector> Load() {
  std::vector<PipelineVector> vectors;
  for (const Json& vector : File()["vectors"]) {
    vectors.push_back({.id = vector["id"],
                       .schedule = vector["schedule"],
                       .profile = ProfileOf(vector),
                       .microbatches = vector["microbatches"],
                       .model = ModelOf(vector["comm_model"]),
                       .json = vector});
  }
  return vectors;
}

}  // namespace

const std::vector<PipelineVector>& PipelineVectors() {
  static const auto& vectors = *new std::vector<PipelineVector>(Load());
  return vectors;
}

const Json& PipelineCases(const std::string& name) { return File().at(name); }

std::string OrderOf(const PipelineVector& v) {
  std::string text;
  for (const Json& row : v.json["order"]) text += row.get<std::string>() + "\n";
  return text;
}

PipelineProfile ProfileOf(const Json& json) {
  PipelineProfile profile;
  for (StageIndex s = 0; s < json["stages"].get<int32_t>(); ++s) {
    profile.stages.push_back(
        {.rank = json.contains("stage_device") ? json["stage_device"][s].get<int32_t>() : s,
         .forward_seconds = json["t_F"][s],
         .input_gradient_seconds = json["t_I"][s],
         .weight_gradient_seconds = json["t_W"][s],
         .weight_gradient_bytes = ByteCount(1)});
    if (s == 0) continue;
    const auto seconds = [&](const char* name) {
      return json.contains("c") ? json["c"].get<double>() : json[name][s - 1].get<double>();
    };
    profile.edges.push_back({.from = s - 1,
                             .to = s,
                             .forward_seconds = seconds("c_F"),
                             .backward_seconds = seconds("c_B")});
  }
  const auto last = std::ranges::max_element(profile.stages, {}, &StageProfile::rank);
  profile.rank_bytes_max.resize(last->rank + 1);
  return profile;
}

PipelineProfile UniformProfile(int32_t stages, double seconds, double transfer_seconds) {
  const std::vector<double> each(stages, seconds);
  return ProfileOf(
      {{"stages", stages}, {"t_F", each}, {"t_I", each}, {"t_W", each}, {"c", transfer_seconds}});
}

PipelineProfile PlacedBy(RankIndex (*rank_of)(StageIndex stage, int32_t ranks), int32_t ranks,
                         PipelineProfile profile) {
  profile.rank_bytes_max.resize(ranks);
  for (StageIndex s = 0; s < std::ssize(profile.stages); ++s) {
    profile.stages[s].rank = rank_of(s, ranks);
  }
  return profile;
}

PipelineProfile WithPairs(PipelineProfile profile, double seconds) {
  const auto stages = static_cast<StageIndex>(profile.stages.size());
  for (StageIndex forward = 0; forward < stages; ++forward) {
    for (StageIndex backward = 0; backward < stages; ++backward) {
      const bool is_pair =
          forward != backward && profile.stages[forward].rank == profile.stages[backward].rank;
      if (is_pair) profile.pairs.push_back({forward, backward, seconds});
    }
  }
  return profile;
}

PipelineTimeline RunOf(const absl::StatusOr<Schedule>& schedule, const PipelineProfile& profile,
                       TransferModel model) {
  CHECK_OK(schedule);
  const absl::StatusOr<OpTable> ops = OpTable::Create(*schedule, profile);
  CHECK_OK(ops);
  absl::StatusOr<PipelineTimeline> run = SimulatePipeline(*ops, model);
  CHECK_OK(run);
  return *std::move(run);
}

}  // namespace crossmesh
