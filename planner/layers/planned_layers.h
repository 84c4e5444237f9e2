#pragma once

#include "common/base/byte_count.h"
#include "common/base/cancel_check.h"
#include "common/base/digest.h"
#include "common/mesh/device.h"
#include "common/mesh/topology.h"
#include "common/plan/plan.h"
#include "crossmesh/v1/pipeline.pb.h"
#include "planner/layers/inside_hosts.h"
#include "planner/layers/layer_program.h"
#include "planner/layers/layer_timeline.h"
#include "planner/pipeline/planning/plan_ports.h"

#include <cstdint>
#include <memory>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {

// A layer program with the plans of all of its transfers, proven, and its predicted run. Immutable.
struct PlannedLayers {
  // A transfer's number is a part of the keys of its messages.
  static constexpr int64_t kTransfersMax = (1 << 16) - 1;
  static constexpr int64_t kMessagesMax = 1 << 22;

  struct Transfer {
    std::shared_ptr<const Plan> plan;  // proven; equal transfers have the same one
    std::vector<PortBytes> ports;      // of a message; none inside a host
    InsideHosts inside;                // likewise
    double seconds() const { return plan->figures().predicted_seconds + inside.seconds; }
    int64_t network_bytes() const { return plan->figures().network_bytes; }
  };
  // Of the rank's device on which messages take most.
  struct RankBytes {
    DeviceId device;
    ByteCount bytes;
  };

  LayerProgram program;
  std::vector<Transfer> transfers;  // as in the program
  LayerTimeline run;
  std::vector<RankBytes> memory;  // by rank
  Digest id;                      // of all that workers must agree on

  int64_t plans() const;  // that differ
  // Everything but the time that planning took.
  v1::PipelinePlan Summary() const;
};

// Plans each transfer once: inside a rank by the steps that a search finds, one course of one
// instance, or by a plan without courses where nothing is reduced and that does; between ranks by
// PlanReshard. Then proves the plans and the memory, and predicts an iteration. Pure: equal
// programs give equal plans.
//
// A device has for each buffer of a transfer its source tiles, its destination tiles, and what lies
// between the steps of a course.
//
// InvalidArgument names the transfer: what Validate, PlanRedistribution, PlanReshard and Prove
// find; tensors that are summed in different steps. ResourceExhausted names the rank whose messages
// take more than it may have, with what they take; too many transfers, messages, or hops together.
// Cancelled. Cost: that of the plans that differ, and of SimulateLayers.
absl::StatusOr<std::shared_ptr<const PlannedLayers>> PlanLayers(
    LayerProgram program, const Topology& topology, CancelCheck cancelled = NeverCancelled);

// The same of another program that moves the same tensors between the same meshes, by the plans
// that `planned` has: ops, messages and buffers may differ. InvalidArgument: what Validate finds;
// another transfer in the place of one. ResourceExhausted: as PlanLayers. Cost: SimulateLayers.
absl::StatusOr<std::shared_ptr<const PlannedLayers>> PlanLayersAs(const PlannedLayers& planned,
                                                                  LayerProgram program);

}  // namespace crossmesh
