#pragma once

#include "client/cli/pipeline_flags.h"
#include "crossmesh/v1/pipeline_service.pb.h"

#include <cstdint>
#include <string>

#include <absl/status/statusor.h>

namespace CLI {
class App;
}  // namespace CLI

namespace crossmesh {

// The flags of a pipeline that is run or rehearsed: which one, by which schedule, how often.
class PipelineRunFlags {
 public:
  explicit PipelineRunFlags(bool rehearsal) : rehearsal_(rehearsal) {}

  void AddTo(CLI::App& command);

  // With an id of its own where none was given. InvalidArgument names the flag: neither a file nor
  // a name or both, iterations below 1, a duration that is none, a file that cannot be read.
  absl::StatusOr<v1::StartPipelineRequest> Request() const;

  // Files to write; empty: none.
  const std::string& svg() const { return svg_; }
  const std::string& times() const { return times_; }

 private:
  const bool rehearsal_;
  PipelineFlags pipeline_;
  std::string name_;
  int64_t iterations_ = 3;
  bool no_checksums_ = false;
  std::string iteration_deadline_;
  std::string stall_limit_;
  std::string rejoin_limit_;
  bool stop_at_failure_ = false;
  std::string request_id_;
  std::string svg_;
  std::string times_;
};

}  // namespace crossmesh
