#include "client/cli/pipeline_run_flags.h"

#include "client/cli/duration_flag.h"
#include "client/cli/options.h"
#include "client/client.h"
#include "common/base/status_macros.h"

#include <absl/strings/str_cat.h>

namespace crossmesh {

void PipelineRunFlags::AddTo(CLI::App& command) {
  pipeline_.AddTo(command, {.file_required = false});
  AddOption(command, "--pipeline", name_, "A registered pipeline, instead of a file");
  Option iterations = AddOption(command, "--iterations", iterations_, "So many, at least 1");
  if (rehearsal_) {
    iterations.ShowDefault();
  } else {
    iterations.Required();
  }
  AddFlag(command, "--no-checksums", no_checksums_, "Transfers are not verified");
  AddOption(command, "--iteration-deadline", iteration_deadline_,
            "Of each, e.g. 90s (default: 3 times the prediction and 30s)");
  AddOption(command, "--stall-limit", stall_limit_, "Of transfers (default: 5s)");
  AddOption(command, "--rejoin-limit", rejoin_limit_,
            "How long a failed iteration waits for all workers (default: 30s)");
  AddFlag(command, "--stop-at-failure", stop_at_failure_,
          "End with the first iteration that fails");
  AddOption(command, "--request-id", request_id_,
            "Names this request: given again, it is the same run");
  AddOption(command, "--svg", svg_,
            "Draw what was measured beside what was planned to this file: .svg, .png or .pdf");
  AddOption(command, "--write-times", times_,
            absl::StrCat("Write the pipeline to this file, with the measured times of its ",
                         rehearsal_ ? "edges" : "ops and edges"));
}

absl::StatusOr<v1::StartPipelineRequest> PipelineRunFlags::Request() const {
  if (name_.empty() == pipeline_.file().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("pipeline: expected either a file or --pipeline, found ",
                     name_.empty() ? "neither" : "both"));
  }
  if (iterations_ < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--iterations: expected at least 1, found ", iterations_));
  }
  v1::StartPipelineRequest request;
  if (name_.empty()) {
    ASSIGN_OR_RETURN(*request.mutable_inline_pipeline(), pipeline_.ReadSpec());
  } else {
    request.set_pipeline(name_);
  }
  ASSIGN_OR_RETURN(*request.mutable_choice(), pipeline_.Choice());
  request.set_request_id(request_id_.empty() ? NewRequestId() : request_id_);
  request.set_iterations(iterations_);
  request.set_rehearsal(rehearsal_);
  if (no_checksums_) request.set_checksums(false);
  request.set_stop_at_failure(stop_at_failure_);
  if (!iteration_deadline_.empty()) {
    RETURN_IF_ERROR(ReadDuration("iteration-deadline", iteration_deadline_,
                                 *request.mutable_iteration_deadline()));
  }
  if (!stall_limit_.empty()) {
    RETURN_IF_ERROR(ReadDuration("stall-limit", stall_limit_, *request.mutable_stall_limit()));
  }
  if (!rejoin_limit_.empty()) {
    RETURN_IF_ERROR(ReadDuration("rejoin-limit", rejoin_limit_, *request.mutable_rejoin_limit()));
  }
  return request;
}

}  // namespace crossmesh
