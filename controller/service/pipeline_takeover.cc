// Runs of pipelines that another controller has left.

#include "common/base/status_macros.h"
#include "controller/catalog/job_records.h"
#include "controller/dispatch/pipeline_resumption.h"
#include "controller/dispatch/runnable_plan.h"
#include "controller/dispatch/running_pipeline.h"
#include "controller/dispatch/running_table.h"
#include "controller/service/job_registry.h"
#include "controller/service/pipeline_service.h"
#include "crossmesh/stored/v1/pipeline.pb.h"

#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// A run that fails by that, unless it has done all it had to do.
PipelineRequest Unplannable(const absl::Status& why) {
  return {.plan = [why](CancelCheck) -> PipelineRequest::Planned { return why; }};
}

}  // namespace

absl::Status PipelineService::TakeUp() {
  ASSIGN_OR_RETURN(const std::vector<JobRecords::Unfinished> left, options_.registry.Load());
  for (const JobRecords::Unfinished& job : left) {
    RETURN_IF_ERROR(options_.registry.Resume(
        job,
        [&](JobRegistry<v1::PipelineRun>::Entry entry, const std::string& bytes) -> absl::Status {
          stored::v1::PipelineResumption resumption;
          if (!resumption.ParseFromString(bytes)) {
            return absl::DataLossError(absl::StrCat("stored run ", entry.job.id(),
                                                    ": expected its request, found ", bytes.size(),
                                                    " bytes of something else"));
          }
          absl::StatusOr<PipelineRequest> run = RequestOf(resumption.request());
          if (!run.ok()) run = Unplannable(run.status());
          ASSIGN_OR_RETURN(run->left, ParseProgress(entry.job.id(), job.progress));
          run->shown = std::move(entry.job);
          return options_.running.Start(*std::move(run));
        }));
  }
  return absl::OkStatus();
}

}  // namespace crossmesh
