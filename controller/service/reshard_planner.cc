#include "controller/service/reshard_planner.h"

#include "common/base/cancel_check.h"
#include "common/base/clock.h"
#include "common/base/digest_builder.h"
#include "common/base/error_place.h"
#include "common/base/status_macros.h"
#include "common/metrics/controller_metrics.h"
#include "common/reshard/reshard_inputs.h"
#include "common/wire/reshard_codec.h"
#include "controller/catalog/catalog.h"
#include "controller/catalog/plan_cache.h"
#include "controller/dispatch/planned_reshard.h"
#include "controller/dispatch/planning_queue.h"
#include "controller/membership/worker_registry.h"
#include "planner/reshard/reshard_request.h"

#include <iterator>
#include <string>
#include <utility>

#include <absl/status/status.h>

namespace crossmesh {
namespace {

// Counts changes of the planner after which an equal request gives another plan.
constexpr int64_t kPlannerVersion = 4;

}  // namespace

// The registered objects of a specification, and the network; empty where it has its own.
struct ReshardPlanner::Objects {
  Registered<Manifest> manifest;
  Registered<Mesh> source;
  Registered<Mesh> destination;
  std::shared_ptr<const NetworkDescription> network;
  WorkerRegistry::HostLinks failed_links;
};

struct ReshardPlanner::Ticket::Draft {
  Objects objects;
  ReshardInputs inputs;
  ReshardRequest request;  // without its tensors
};

ReshardPlanner::ReshardPlanner(const Environment& environment, int64_t cache_bytes_max)
    : catalog_(environment.catalog),
      workers_(environment.workers),
      clock_(environment.clock),
      metrics_(environment.metrics),
      cache_(std::make_shared<PlanCache<PlannedReshard>>(cache_bytes_max)) {}

absl::StatusOr<ReshardPlanner::Ticket> ReshardPlanner::Open(
    const v1::ReshardSpec& spec, absl::FunctionRef<absl::Status()> room) {
  ASSIGN_OR_RETURN(const Objects objects, Find(spec));
  Ticket ticket{.key = KeyOf(spec, objects)};
  ticket.planned = cache_->Find(ticket.key);
  metrics_.PlanCacheRequest(ticket.planned != nullptr ? CacheResult::kHit : CacheResult::kMiss);
  if (ticket.planned == nullptr) {
    RETURN_IF_ERROR(room());
    ASSIGN_OR_RETURN(ticket.draft, Decode(spec, objects));
    const ReshardInputs& inputs = ticket.draft->inputs;
    ticket.cost = PlanningCost(std::ssize(inputs.manifest->tensors()),
                               inputs.source.mesh->slots() + inputs.destination.mesh->slots());
  }
  return ticket;
}

absl::StatusOr<ReshardPlanner::Objects> ReshardPlanner::Find(const v1::ReshardSpec& spec) {
  Objects objects;
  if (spec.has_manifest()) {
    ASSIGN_OR_RETURN(objects.manifest,
                     At("spec.manifest", catalog_.manifests.Get(spec.manifest())));
  }
  if (spec.source().has_mesh()) {
    ASSIGN_OR_RETURN(objects.source,
                     At("spec.source.mesh", catalog_.meshes.Get(spec.source().mesh())));
  }
  if (spec.destination().has_mesh()) {
    ASSIGN_OR_RETURN(objects.destination,
                     At("spec.destination.mesh", catalog_.meshes.Get(spec.destination().mesh())));
  }
  if (!spec.has_topology()) {
    ASSIGN_OR_RETURN(objects.network, catalog_.network.Get());
  }
  objects.failed_links = workers_.FailedHostLinks();
  return objects;
}

Digest ReshardPlanner::KeyOf(const v1::ReshardSpec& spec, const Objects& objects) const {
  v1::ReshardSpec planned = spec;
  planned.mutable_source()->clear_storage();
  planned.mutable_destination()->clear_storage();
  planned.clear_checksums();
  planned.clear_create_destination();
  planned.clear_deadline();
  planned.clear_stall_limit();
  DigestBuilder builder;
  builder.AddInt(kPlannerVersion);
  builder.AddText(planned.SerializeAsString());
  builder.AddInt(SharesStorage(spec) ? 1 : 0);
  // A revision names one content of an object, since a name that is taken keeps its content.
  builder.AddInts(objects.manifest.revision, objects.source.revision, objects.destination.revision,
                  objects.network == nullptr ? 0 : objects.network->revision);
  for (const auto& [from, to] : objects.failed_links) {
    builder.AddText(from);
    builder.AddText(to);
  }
  if (spec.strategy().empty()) builder.AddInt(static_cast<int64_t>(workers_.m2n_workers()));
  return builder.Finish();
}

absl::StatusOr<std::shared_ptr<const ReshardPlanner::Ticket::Draft>> ReshardPlanner::Decode(
    const v1::ReshardSpec& spec, const Objects& objects) const {
  auto draft = std::make_shared<Ticket::Draft>();
  draft->objects = objects;
  ASSIGN_OR_RETURN(draft->inputs, FromProto(spec, {.manifest = objects.manifest.value,
                                                   .source_mesh = objects.source.value,
                                                   .destination_mesh = objects.destination.value}));
  ASSIGN_OR_RETURN(
      draft->request,
      RequestWithoutTensors(draft->inputs,
                            objects.network == nullptr ? Topology() : objects.network->topology));
  draft->request.failed_links = objects.failed_links;
  if (draft->inputs.strategy.empty()) draft->request.no_m2n = WhyNoM2n(draft->inputs);
  return draft;
}

std::string ReshardPlanner::WhyNoM2n(const ReshardInputs& inputs) const {
  for (const ReshardInputs::Side* side : {&inputs.source, &inputs.destination}) {
    if (side->mesh == nullptr) continue;
    std::string why = workers_.WhyNoM2n(side->mesh->devices());
    if (!why.empty()) return why;
  }
  return "";
}

void ReshardPlanner::Plan(const Ticket& ticket, Flights::Wanted wanted) {
  if (ticket.planned != nullptr) return wanted.done(ticket.planned);
  flights_.Do(ticket.key, std::move(wanted),
              [&](CancelCheck cancelled) { return PlanNow(ticket, cancelled); });
}

ReshardPlanner::Flights::Result ReshardPlanner::PlanNow(const Ticket& ticket,
                                                        CancelCheck cancelled) {
  RETURN_IF_ERROR(CheckWanted(cancelled));
  // Another request for the same may have been planned since the ticket was opened.
  if (auto planned = cache_->Find(ticket.key)) return planned;
  const Ticket::Draft& draft = *ticket.draft;
  const absl::Duration begin = clock_.Monotonic();
  ASSIGN_OR_RETURN(TensorTable tensors, BuildReshardTensors(draft.inputs));
  ReshardRequest request = draft.request;
  request.tensors = std::make_shared<const TensorTable>(std::move(tensors));
  RETURN_IF_ERROR(CheckWanted(cancelled));
  ASSIGN_OR_RETURN(
      std::shared_ptr<const PlannedReshard> planned,
      PlannedReshard::Create(std::move(request), draft.inputs.limits, clock_, cancelled));
  metrics_.PlanComputed(planned->plan().figures().strategy, clock_.Monotonic() - begin,
                        static_cast<int64_t>(planned->plan().relays().size()));
  Keep(ticket, planned);
  return planned;
}

void ReshardPlanner::Keep(const Ticket& ticket,
                          const std::shared_ptr<const PlannedReshard>& planned) {
  const Objects& objects = ticket.draft->objects;
  cache_->Insert(ticket.key, {.value = planned,
                              .weight = planned->heap_bytes(),
                              .objects = {objects.manifest.revision, objects.source.revision,
                                          objects.destination.revision}});
  planned->OnGrowth(
      [weak = std::weak_ptr(cache_), &metrics = metrics_, key = ticket.key](int64_t heap_bytes) {
        const auto cache = weak.lock();
        if (cache == nullptr) return;
        cache->SetWeight(key, heap_bytes);
        metrics.SetPlanCacheBytes(cache->weight());
      });
  // What was deleted meanwhile has been forgotten too early for this one.
  if (!AreCurrent(objects)) cache_->Erase(ticket.key);
  metrics_.SetPlanCacheBytes(cache_->weight());
}

void ReshardPlanner::Forget(int64_t revision) {
  cache_->EraseOf(revision);
  metrics_.SetPlanCacheBytes(cache_->weight());
}

bool ReshardPlanner::AreCurrent(const Objects& objects) {
  const auto is_current = [](auto& table, const auto& object) {
    if (object.value == nullptr) return true;  // inline
    const auto found = table.Get(object.name);
    return found.ok() && found->revision == object.revision;
  };
  return is_current(catalog_.manifests, objects.manifest) &&
         is_current(catalog_.meshes, objects.source) &&
         is_current(catalog_.meshes, objects.destination);
}

}  // namespace crossmesh
