#pragma once

#include "crossmesh/v1/pipeline.pb.h"
#include "planner/pipeline/planning/pipeline_description.h"

#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace CLI {
class App;
}  // namespace CLI

namespace crossmesh {

// A PipelineSpec in the API's JSON. InvalidArgument names the file.
absl::StatusOr<v1::PipelineSpec> ReadPipelineSpec(const std::string& file);

// What of PipelineFlags a command has.
struct PipelineFlagsForm {
  bool file_required = true;  // and nothing is run: pairs may have times by --pair-seconds
  bool one_schedule = true;   // else --schedule may be given any number of times
};

// The file of a pipeline, and the flags that say which schedule it is to have.
class PipelineFlags {
 public:
  void AddTo(CLI::App& command, const PipelineFlagsForm& form = {});

  const std::string& file() const { return file_; }
  // With --pair-seconds for all pairs that the file has no time of.
  absl::StatusOr<v1::PipelineSpec> ReadSpec() const;
  // The same, decoded. FailedPrecondition where a rank's mesh is only a name, which a controller
  // would know.
  absl::StatusOr<PipelineDescription> ReadDescription() const;
  // InvalidArgument names a file of --schedule that cannot be read.
  absl::StatusOr<v1::PipelineChoice> Choice() const;
  // One for each --schedule.
  absl::StatusOr<std::vector<v1::PipelineChoice>> Choices() const;

 private:
  absl::StatusOr<v1::PipelineChoice> ChoiceOf(const std::string& schedule) const;

  std::string file_;
  std::vector<std::string> schedules_;
  bool delay_weight_gradients_ = false;
  std::vector<int32_t> windows_;
  std::string objective_;
  std::string transfer_model_;
  int64_t search_ops_max_ = 0;
  double pair_seconds_ = 0;  // 0: not given
};

}  // namespace crossmesh
