#pragma once

#include "crossmesh/v1/pipeline.pb.h"
#include "planner/pipeline/op.h"
#include "planner/pipeline/search/schedule_search.h"
#include "planner/pipeline/transfer_model.h"

#include <cstdint>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {

// v1::PipelineChoice, decoded.
struct PipelineChoice {
  static constexpr const char* kAuto = "auto";
  static constexpr int64_t kSearchOpsMax = int64_t{1} << 32;

  std::string schedule = kAuto;  // a name; empty where there is a file
  std::string schedule_file;
  std::vector<int32_t> windows;
  SearchOptions search;  // its form and model are those of every schedule
};

// InvalidArgument names the field: a schedule that there is not, or a name and a file; windows of
// another schedule than window_order; an objective or a model that there is not; a search of less
// than nothing, or of more than kSearchOpsMax.
absl::StatusOr<PipelineChoice> FromProto(const v1::PipelineChoice& proto);

}  // namespace crossmesh
