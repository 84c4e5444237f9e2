#include "client/cli/cluster_view.h"

#include "client/outcome.h"
#include "common/base/status_macros.h"

namespace crossmesh {

std::map<std::string, int> ClusterView::WorkersByState() const {
  std::map<std::string, int> counts;
  for (const v1::Worker& worker : workers) ++counts[std::string(StateName(worker.state()))];
  return counts;
}

absl::StatusOr<ClusterView> LookAtCluster(Client& client, absl::Duration now) {
  ClusterView view = {.taken = now, .address = client.address()};
  ASSIGN_OR_RETURN(view.controller, client.GetController());
  ASSIGN_OR_RETURN(view.network, client.GetNetwork());
  ASSIGN_OR_RETURN(view.workers, client.ListWorkers());
  ASSIGN_OR_RETURN(view.operations, client.ListOperations(kJobsLookedAt));
  ASSIGN_OR_RETURN(view.runs, client.ListPipelineRuns(kJobsLookedAt));
  return view;
}

}  // namespace crossmesh
