#pragma once

#include "common/mesh/topology.h"
#include "common/plan/plan.h"
#include "common/plan/proof.h"
#include "crossmesh/v1/reshard.pb.h"

#include <cstddef>
#include <vector>

#include <absl/status/statusor.h>
#include <absl/time/time.h>

namespace crossmesh {

v1::PortPrice ToProto(const PortPrice& price);

// The first kBroadcastGroupsToldMax.
inline constexpr size_t kBroadcastGroupsToldMax = 100;
google::protobuf::RepeatedPtrField<v1::BroadcastGroup> ToProto(
    const std::vector<BroadcastFigures>& broadcasts);

v1::M2nFigures ToProto(const M2nFigures& m2n);

v1::BindingMode ToProto(BindingMode mode);
// UNSPECIFIED is kShadow. InvalidArgument: a number that is no mode.
absl::StatusOr<BindingMode> FromProto(v1::BindingMode proto);

// How a plan came about.
struct Planning {
  const Topology& topology;
  absl::Duration duration;  // planning and proof
  bool cached = false;
};

// What people and tools get to see of a plan.
v1::PlanSummary SummaryOf(const Plan& plan, const Proof& proof, const Planning& planning);

}  // namespace crossmesh
