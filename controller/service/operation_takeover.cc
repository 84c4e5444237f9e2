// Operations that another controller has left.

#include "common/base/status_macros.h"
#include "controller/catalog/job_records.h"
#include "controller/dispatch/operation_resumption.h"
#include "controller/dispatch/running_operation.h"
#include "controller/dispatch/running_table.h"
#include "controller/service/job_registry.h"
#include "controller/service/reshard_service.h"

#include <string>
#include <utility>
#include <vector>

namespace crossmesh {

absl::Status ReshardService::TakeUp() {
  ASSIGN_OR_RETURN(const std::vector<JobRecords::Unfinished> left, options_.registry.Load());
  for (const JobRecords::Unfinished& job : left) {
    RETURN_IF_ERROR(options_.registry.Resume(
        job,
        [this](JobRegistry<v1::Operation>::Entry entry, const std::string& bytes) -> absl::Status {
          OperationRequest request;
          ASSIGN_OR_RETURN(request.resumption, ParseResumption(entry.job, bytes));
          request.shown = std::move(entry.job);
          return options_.running.Start(std::move(request));
        }));
  }
  return absl::OkStatus();
}

}  // namespace crossmesh
