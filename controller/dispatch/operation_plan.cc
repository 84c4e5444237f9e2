#include "controller/dispatch/operation_plan.h"

#include "common/plan/plan_warnings.h"
#include "common/wire/plan_codec.h"

#include <utility>

namespace crossmesh {
namespace {

v1::OperationReport ReportOf(const PlannedReshard& planned) {
  const PlanFigures& figures = planned.plan().figures();
  v1::OperationReport report;
  report.set_network_bytes(figures.network_bytes);
  report.set_least_network_bytes(figures.least_network_bytes);
  report.set_busiest_host_bytes(figures.busiest_host_bytes);
  report.set_busiest_host(figures.busiest_host);
  report.set_bound_seconds(figures.bound.seconds);
  report.set_predicted_seconds(figures.predicted_seconds);
  report.set_search(figures.search);
  for (std::string& warning : PlanWarnings(planned.tensors(), planned.request().topology)) {
    report.add_warnings(std::move(warning));
  }
  *report.mutable_broadcast_groups() = ToProto(figures.broadcasts);
  if (figures.m2n.has_value()) *report.mutable_m2n() = ToProto(*figures.m2n);
  return report;
}

}  // namespace

OperationPlan OperationPlan::Of(const PlannedReshard& planned) {
  const PlanFigures& figures = planned.plan().figures();
  return {.id = planned.plan().id().ToString(),
          .total_bytes = planned.proof().destination_bytes,
          .strategy = figures.strategy,
          .assumed_rates = figures.assumed_rates,
          .replicas = planned.replicas(),
          .report = ReportOf(planned)};
}

}  // namespace crossmesh
