#pragma once

#include "common/base/cancel_check.h"
#include "common/base/digest.h"
#include "controller/catalog/plan_cache.h"
#include "crossmesh/v1/reshard.pb.h"

#include <cstdint>
#include <memory>

#include <absl/status/statusor.h>

namespace crossmesh {

class Clock;
class ControllerMetrics;
class PlannedReshard;
struct Catalog;

// Where specifications become plans: looks up what they name, decodes them within limits, plans,
// proves, and keeps what was planned. Thread-safe.
class ReshardPlanner {
 public:
  static constexpr int64_t kCacheWeightMax = int64_t{512} << 20;  // of plans, about in bytes

  ReshardPlanner(Catalog& catalog, const Clock& clock, ControllerMetrics& metrics)
      : catalog_(catalog), clock_(clock), metrics_(metrics) {}

  // A specification that can be planned.
  struct Ticket {
    // Of all that the plan is a function of: the specification without what concerns its execution
    // alone, the revisions of what it names and of the network where it describes none, and the
    // planner's version.
    Digest key;
    // The cached plan, or else all that it takes to make one.
    std::shared_ptr<const PlannedReshard> planned;
    struct Draft;
    std::shared_ptr<const Draft> draft;
  };
  // Cost: linear in the specification; with a cached plan nothing of it is decoded. NotFound names
  // a mesh or manifest that is not registered; InvalidArgument names the field.
  absl::StatusOr<Ticket> Open(const v1::ReshardSpec& spec);

  // Plans and proves, unless it is cached by now. What BuildReshardTensors, PlanReshard and Prove
  // find. May take seconds; Cancelled soon after `cancelled` says so.
  absl::StatusOr<std::shared_ptr<const PlannedReshard>> Plan(
      const Ticket& ticket, CancelCheck cancelled = NeverCancelled);

 private:
  struct Objects;

  absl::StatusOr<Objects> Find(const v1::ReshardSpec& spec);
  absl::StatusOr<std::shared_ptr<const Ticket::Draft>> Decode(const v1::ReshardSpec& spec,
                                                              const Objects& objects) const;
  Digest KeyOf(const v1::ReshardSpec& spec, const Objects& objects) const;

  Catalog& catalog_;
  const Clock& clock_;
  ControllerMetrics& metrics_;
  PlanCache<PlannedReshard> cache_{kCacheWeightMax};
};

}  // namespace crossmesh
