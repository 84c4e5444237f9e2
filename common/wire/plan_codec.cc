#include "common/wire/plan_codec.h"

#include "common/plan/plan_warnings.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

void SetBound(const Bound& bound, v1::PlanSummary& proto) {
  proto.set_bound_seconds(bound.seconds);
  proto.set_ingress_seconds(bound.ingress_seconds);
  proto.set_uplink_seconds(bound.uplink_seconds);
  proto.set_rack_ingress_seconds(bound.rack_ingress_seconds);
  proto.set_rack_uplink_seconds(bound.rack_uplink_seconds);
  proto.set_together_seconds(bound.together_seconds);
  for (const PortPrice& price : bound.proof) *proto.add_proof() = ToProto(price);
}

void SetFigures(const PlanFigures& figures, v1::PlanSummary& proto) {
  proto.set_strategy(figures.strategy);
  SetBound(figures.bound, proto);
  proto.set_predicted_seconds(figures.predicted_seconds);
  proto.set_simulated(figures.simulated);
  proto.set_rounding_seconds(figures.excess.rounding_seconds);
  proto.set_routing_seconds(figures.excess.routing_seconds);
  proto.set_fill_seconds(figures.excess.fill_seconds);
  proto.set_blocking_seconds(figures.excess.blocking_seconds);
  proto.set_assumed_rates(figures.assumed_rates);
  proto.set_depth(figures.depth);
  proto.set_network_bytes(figures.network_bytes);
  proto.set_least_network_bytes(figures.least_network_bytes);
  proto.set_busiest_host_bytes(figures.busiest_host_bytes);
  proto.set_busiest_host(figures.busiest_host);
  proto.set_search(figures.search);
  *proto.mutable_broadcast_groups() = ToProto(figures.broadcasts);
  if (figures.m2n.has_value()) *proto.mutable_m2n() = ToProto(*figures.m2n);
}

void SetProof(const Proof& proof, v1::PlanSummary& proto) {
  proto.set_classes(proof.classes);
  proto.set_relays(proof.relays);
  proto.set_hops(proof.hops);
  proto.set_channels(proof.channels);
  proto.set_destination_bytes(proof.destination_bytes);
  proto.set_peak_device_bytes(proof.peak_device_bytes);
  proto.set_peak_device(proof.peak_device);
}

std::string OverGpusText(const Plan& plan) {
  std::vector<DeviceId> devices;
  for (const DeviceRank device : plan.spec().over_gpus) {
    devices.push_back(plan.tensors().devices()[device]);
  }
  return DevicesToString(devices);
}

}  // namespace

v1::M2nFigures ToProto(const M2nFigures& m2n) {
  v1::M2nFigures proto;
  proto.set_seconds(m2n.seconds);
  proto.set_refusal(m2n.refusal);
  proto.set_not_chosen(m2n.not_chosen);
  return proto;
}

google::protobuf::RepeatedPtrField<v1::BroadcastGroup> ToProto(
    const std::vector<BroadcastFigures>& broadcasts) {
  google::protobuf::RepeatedPtrField<v1::BroadcastGroup> proto;
  for (const BroadcastFigures& group :
       std::span(broadcasts).first(std::min(broadcasts.size(), kBroadcastGroupsToldMax))) {
    v1::BroadcastGroup& added = *proto.Add();
    added.set_devices(group.devices);
    added.set_relay_seconds(group.relay_seconds);
    added.set_broadcast_seconds(group.broadcast_seconds);
  }
  return proto;
}

v1::PortPrice ToProto(const PortPrice& price) {
  v1::PortPrice proto;
  proto.set_port(std::string(PortName(price.port)));
  proto.set_name(price.name);
  proto.set_price(price.price);
  return proto;
}

v1::BindingMode ToProto(BindingMode mode) {
  return mode == BindingMode::kShadow ? v1::BINDING_MODE_SHADOW : v1::BINDING_MODE_IN_PLACE;
}

absl::StatusOr<BindingMode> FromProto(v1::BindingMode proto) {
  // As a number, since proto3 keeps values that the enumeration lacks.
  switch (static_cast<int>(proto)) {
    case v1::BINDING_MODE_UNSPECIFIED:
    case v1::BINDING_MODE_SHADOW:
      return BindingMode::kShadow;
    case v1::BINDING_MODE_IN_PLACE:
      return BindingMode::kInPlace;
    default:
      return absl::InvalidArgumentError(absl::StrCat(
          "binding mode: expected SHADOW or IN_PLACE, found number ", static_cast<int>(proto)));
  }
}

v1::PlanSummary SummaryOf(const Plan& plan, const Proof& proof, const Planning& planning) {
  v1::PlanSummary proto;
  proto.set_id(plan.id().ToString());
  SetFigures(plan.figures(), proto);
  SetProof(proof, proto);
  proto.set_chunk_bytes(plan.chunk_bytes());
  proto.set_periods(plan.periods());
  const TensorTable& tensors = plan.tensors();
  proto.set_over_gpus(OverGpusText(plan));
  proto.set_tensors(
      std::ranges::count_if(tensors.group_of_tensor(), [](int32_t group) { return group >= 0; }));
  proto.set_groups(static_cast<int64_t>(tensors.groups().size()));
  proto.set_replicas(tensors.replicas());
  proto.set_assumed_bytes_per_second(planning.topology.assumed_bytes_per_second());
  proto.set_plan_seconds(absl::ToDoubleSeconds(planning.duration));
  proto.set_cached(planning.cached);
  for (std::string& warning : PlanWarnings(tensors, planning.topology)) {
    proto.add_warnings(std::move(warning));
  }
  return proto;
}

}  // namespace crossmesh
