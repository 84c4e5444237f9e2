#include "planner/reshard/gpu_plan.h"

#include "common/base/status_macros.h"
#include "common/plan/m2n_transfer.h"
#include "planner/network/bound.h"
#include "planner/network/demands.h"
#include "planner/network/gpu_bound.h"
#include "planner/network/m2n_prediction.h"
#include "planner/network/port_load.h"
#include "planner/network/routing.h"
#include "planner/reshard/broadcast_choice.h"
#include "planner/reshard/gpu_relays.h"
#include "planner/reshard/host_chunks.h"
#include "planner/reshard/published_routes.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

class GpuPlanner {
 public:
  GpuPlanner(const ReshardRequest& request, const std::shared_ptr<const Slicing>& slicing,
             const GpuNetwork& network, CancelCheck cancelled)
      : request_(request),
        slicing_(slicing),
        network_(network),
        cancelled_(cancelled),
        groups_(GroupByDevices(*request.tensors, *slicing)),
        bound_(BoundOfGpus(groups_.demands, network)),
        copies_(CopiesInPlace(*slicing)),
        copied_(network.host_of.size()) {
    for (const LocalCopy& copy : copies_) {
      copied_[copy.device] += slicing->classes()[copy.slice_class].bytes;
    }
  }

  absl::StatusOr<Plan> Make() const {
    M2nFigures m2n = FiguresOfM2n();
    if (request_.strategy == Strategy::kM2n) RETURN_IF_ERROR(CheckM2n(m2n));
    RETURN_IF_ERROR(CheckWanted(cancelled_));
    if (request_.strategy != Strategy::kRelay) return PlanAsPublished(request_.strategy, m2n);
    ASSIGN_OR_RETURN(GpuRelays best, RelayBetweenGpus(relays_problem()));
    RETURN_IF_ERROR(CheckWanted(cancelled_));
    Plan::Spec spec = SpecOf(Strategy::kRelay, std::move(best), m2n);
    if (!request_.no_broadcasts) ChooseBroadcasts(network_.hosts, network_.costs, spec);
    if (m2n.refusal.empty()) {
      m2n.not_chosen = WhyNotM2n(spec, m2n.seconds);
      if (m2n.not_chosen.empty()) return PlanAsPublished(Strategy::kM2n, m2n);
      spec.figures.m2n = std::move(m2n);
    }
    return Plan::Create(std::move(spec));
  }

 private:
  absl::Status CheckM2n(const M2nFigures& m2n) const {
    if (!m2n.refusal.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("strategy m2n: ", m2n.refusal));
    }
    if (request_.nic_share < 1) {
      return absl::InvalidArgumentError(absl::StrCat(
          "strategy m2n: expected a nic_share of 1, since NCCL M2N keeps to none, found ",
          request_.nic_share));
    }
    return absl::OkStatus();
  }

  // Of what it can move. Empty: it is to be taken instead of these relays.
  std::string WhyNotM2n(const Plan::Spec& relays, double m2n_seconds) const {
    if (!request_.no_m2n.empty()) return request_.no_m2n;
    if (request_.nic_share < 1) return "it keeps to no nic_share";
    const bool is_faster = m2n_seconds < SecondsWithBroadcasts(relays);
    return is_faster ? "" : "relays are predicted to take no more";
  }

  absl::StatusOr<Plan> PlanAsPublished(Strategy strategy, const M2nFigures& m2n) const {
    ASSIGN_OR_RETURN(GpuRelays routed, RoutedBy(strategy));
    RETURN_IF_ERROR(CheckWanted(cancelled_));
    return Plan::Create(SpecOf(strategy, std::move(routed), m2n));
  }

  Plan::Spec SpecOf(Strategy strategy, GpuRelays routed, const M2nFigures& m2n) const {
    Plan::Spec spec{.tensors = request_.tensors,
                    .slicing = slicing_,
                    .copies = copies_,
                    .m2n = strategy == Strategy::kM2n,
                    .chunk_bytes = routed.sizes.chunk_bytes,
                    .periods = routed.sizes.periods,
                    .least_run_ns = LeastNanoseconds(request_.nic_share < 1, bound_.seconds),
                    .binding = request_.binding,
                    .shared_storage = request_.shared_storage,
                    .figures = FiguresOf(strategy, routed, m2n)};
    spec.relays = std::move(routed.routes.relays);
    spec.hops = std::move(routed.routes.hops);
    return spec;
  }

  GpuRelaysProblem relays_problem() const {
    return {.tensors = *request_.tensors,
            .slicing = *slicing_,
            .groups = groups_,
            .network = network_,
            .copied = copied_,
            .chunk_bytes = request_.chunk_bytes,
            .cancelled = cancelled_};
  }

  absl::StatusOr<GpuRelays> RoutedBy(Strategy strategy) const {
    const HostGroups by_host = GroupByHosts(*request_.tensors, *slicing_);
    const ExactBound bound = ComputeBound(by_host.demands, network_.hosts);
    const RoutingProblem problem{.tensors = *request_.tensors,
                                 .slicing = *slicing_,
                                 .network = network_.hosts,
                                 .groups = by_host,
                                 .bound = bound,
                                 .seed = request_.seed,
                                 .cancelled = cancelled_};
    ASSIGN_OR_RETURN(Routes routes, RouteAsPublished(strategy, problem));
    return CutIntoSteps(relays_problem(), std::move(routes));
  }

  M2nFigures FiguresOfM2n() const {
    const TensorTable& tensors = *request_.tensors;
    std::vector<M2nTensors> all;
    for (int32_t group = 0; group < std::ssize(tensors.groups()); ++group) {
      absl::StatusOr<M2nTransfer> transfer = M2nTransferOf(tensors, group);
      if (!transfer.ok()) return {.refusal = std::string(transfer.status().message())};
      all.push_back({.transfer = *std::move(transfer),
                     .item_bytes = tensors.ItemBytesOf(Side::kSource, group),
                     .tensors = tensors.tensors_in_group(group)});
    }
    return {.seconds = PredictM2n(network_, all)};
  }

  PlanFigures FiguresOf(Strategy strategy, const GpuRelays& plan, const M2nFigures& m2n) const {
    const bool is_m2n = strategy == Strategy::kM2n;
    const PortLoad load = ComputePortLoad(*request_.tensors, network_.hosts, plan.routes);
    const BusiestHost host = FindBusiestHost(load, network_.hosts);
    const StepsPrediction& steps = plan.steps;
    const double busiest_seconds =
        is_m2n ? bound_.seconds : std::max(bound_.seconds, steps.busiest_seconds);
    PlanFigures figures{
        .strategy = std::string(StrategyName(strategy)),
        .bound = bound_,
        // Rounding must not put an execution below its bound.
        .predicted_seconds = std::max(is_m2n ? m2n.seconds : steps.seconds, busiest_seconds),
        .depth = load.depth,
        .network_bytes = load.network_bytes,
        .busiest_host_bytes = host.bytes,
        .busiest_host = host.name,
        .m2n = m2n};
    figures.excess.routing_seconds = busiest_seconds - bound_.seconds;
    figures.excess.fill_seconds = figures.predicted_seconds - busiest_seconds;
    figures.least_network_bytes = LeastBytes(DemandsBetweenHosts(groups_.demands, network_));
    if (is_m2n) return figures;  // there are no steps of ours
    figures.search = absl::StrCat(plan.routes.search, plan.routes.search.empty() ? "" : "; ",
                                  steps.steps, " steps, ", steps.messages, " messages of ",
                                  steps.message_bytes / std::max<int64_t>(1, steps.messages),
                                  " bytes in the mean");
    return figures;
  }

  const ReshardRequest& request_;
  const std::shared_ptr<const Slicing>& slicing_;
  const GpuNetwork& network_;
  const CancelCheck cancelled_;
  const HostGroups groups_;
  const Bound bound_;
  std::vector<LocalCopy> copies_;
  std::vector<int64_t> copied_;  // bytes that a device copies to itself
};

}  // namespace

absl::StatusOr<Plan> PlanBetweenGpus(const ReshardRequest& request,
                                     const std::shared_ptr<const Slicing>& slicing,
                                     const GpuNetwork& network, CancelCheck cancelled) {
  return GpuPlanner(request, slicing, network, cancelled).Make();
}

}  // namespace crossmesh
