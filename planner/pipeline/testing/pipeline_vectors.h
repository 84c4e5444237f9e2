// The numeric cases of tests/data/pipeline_vectors.json, whose "conventions" object says what every
// field means.

#pragma once

#include "planner/pipeline/profile.h"
#include "planner/pipeline/schedule.h"
#include "planner/pipeline/timeline.h"
#include "planner/pipeline/transfer_model.h"

#include <ostream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace crossmesh {

struct PipelineVector {
  std::string id;
  std::string schedule;  // its name
  PipelineProfile profile;
  int32_t microbatches = 0;
  TransferModel model = TransferModel::kLatency;
  nlohmann::json json;
};

inline std::ostream& operator<<(std::ostream& out, const PipelineVector& v) { return out << v.id; }

// All vectors in file order; loaded once. Stops the test program when the file cannot be read.
const std::vector<PipelineVector>& PipelineVectors();

// The order of ops that the vector gives, which it must, as ParseSchedule reads it.
std::string OrderOf(const PipelineVector& v);

// The auxiliary cases of that name: "lower_bound_cases" and others.
const nlohmann::json& PipelineCases(const std::string& name);

// A chain of stages, each on its own rank or as `stage_device` says, with the arrays t_F, t_I, t_W
// and c_F, c_B of the case, or its scalar c; memory is unlimited. A stage keeps a byte until its
// gradient of the weights, so that activation bytes are counts of microbatches.
PipelineProfile ProfileOf(const nlohmann::json& json);

// Such a chain with equal stages, whose ops take `seconds` each.
PipelineProfile UniformProfile(int32_t stages, double seconds, double transfer_seconds);

// The same with its stages on so many ranks, as schedules/placement.h places them.
PipelineProfile PlacedBy(RankIndex (*rank_of)(StageIndex stage, int32_t ranks), int32_t ranks,
                         PipelineProfile profile);

// The same where all two stages of a rank have pairs of that time, either way round.
PipelineProfile WithPairs(PipelineProfile profile, double seconds);

// The run of a schedule, which must be one of the profile.
PipelineTimeline RunOf(const absl::StatusOr<Schedule>& schedule, const PipelineProfile& profile,
                       TransferModel model = TransferModel::kLatency);

}  // namespace crossmesh
