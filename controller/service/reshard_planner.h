#pragma once

#include "common/base/digest.h"
#include "controller/catalog/single_flight.h"
#include "crossmesh/v1/reshard.pb.h"

#include <cstdint>
#include <memory>
#include <string>

#include <absl/functional/function_ref.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

class Clock;
class ControllerMetrics;
class PlannedReshard;
class WorkerRegistry;
struct Catalog;
struct ReshardInputs;
template <typename T>
class PlanCache;

// Where specifications become plans: looks up what they name, decodes them within limits, plans,
// proves, and keeps what was planned. Thread-safe.
class ReshardPlanner {
 public:
  // All outlive it; `workers` are asked whether they have NCCL M2N.
  struct Environment {
    Catalog& catalog;
    const WorkerRegistry& workers;
    const Clock& clock;
    ControllerMetrics& metrics;
  };
  // Plans are kept for further requests as long as they have no more memory than that together.
  ReshardPlanner(const Environment& environment, int64_t cache_bytes_max);

  // A specification that can be planned.
  struct Ticket {
    // Of all that the plan is a function of: the specification without what concerns its execution
    // alone, the revisions of what it names and of the network where it describes none, which
    // workers have NCCL M2N where it leaves the strategy open, and the planner's version.
    Digest key;
    // The cached plan, or else all that it takes to make one.
    std::shared_ptr<const PlannedReshard> planned;
    struct Draft;
    std::shared_ptr<const Draft> draft;
    int64_t cost = 0;  // of planning it, as PlanningCost counts
  };
  // Cost: linear in the specification; with a cached plan nothing of it is decoded. NotFound names
  // a mesh or manifest that is not registered; InvalidArgument names the field.
  absl::StatusOr<Ticket> Open(const v1::ReshardSpec& spec) {
    return Open(spec, [] { return absl::OkStatus(); });
  }
  // The same where what is not cached is planned only if there is room for it, which is asked
  // before it is decoded: what is refused costs little.
  absl::StatusOr<Ticket> Open(const v1::ReshardSpec& spec, absl::FunctionRef<absl::Status()> room);

  // Plans and proves, unless it is cached by now, or planned on another thread, which then tells
  // this call as well. What BuildReshardTensors, PlanReshard and Prove find; Cancelled soon after
  // all that want it say so. May take seconds.
  using Flights = SingleFlight<PlannedReshard>;
  void Plan(const Ticket& ticket, Flights::Wanted wanted);

  // The mesh or manifest of this revision was deleted: no request finds plans of it any more.
  void Forget(int64_t revision);

 private:
  struct Objects;

  Flights::Result PlanNow(const Ticket& ticket, CancelCheck cancelled);
  absl::StatusOr<Objects> Find(const v1::ReshardSpec& spec);
  // Are they registered still?
  bool AreCurrent(const Objects& objects);
  void Keep(const Ticket& ticket, const std::shared_ptr<const PlannedReshard>& planned);
  // Where the inputs leave the strategy open.
  std::string WhyNoM2n(const ReshardInputs& inputs) const;
  absl::StatusOr<std::shared_ptr<const Ticket::Draft>> Decode(const v1::ReshardSpec& spec,
                                                              const Objects& objects) const;
  Digest KeyOf(const v1::ReshardSpec& spec, const Objects& objects) const;

  Catalog& catalog_;
  const WorkerRegistry& workers_;
  const Clock& clock_;
  ControllerMetrics& metrics_;
  // Plans that are executed tell it how they grow, maybe when the planner is gone.
  const std::shared_ptr<PlanCache<PlannedReshard>> cache_;
  Flights flights_;
};

}  // namespace crossmesh
