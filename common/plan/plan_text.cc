#include "common/plan/course.h"
#include "common/plan/plan.h"

#include <algorithm>
#include <string>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_split.h>

namespace crossmesh {
namespace {

constexpr int64_t kClassesListedMax = 1000;
constexpr int32_t kGroupsListedMax = 1000;

std::string DeviceNames(const TensorTable& tensors, std::span<const DeviceRank> ranks) {
  std::vector<DeviceId> devices;
  devices.reserve(ranks.size());
  for (const DeviceRank rank : ranks) devices.push_back(tensors.devices()[rank]);
  return DevicesToString(devices);
}

// " as BF16", or nothing.
std::string SentAs(const TensorTable& tensors, ConversionIndex conversion) {
  if (conversion == kNoConversion) return "";
  return absl::StrCat(" as ", DataTypeName(tensors.conversions()[conversion].to));
}

void AppendTensors(const TensorTable& tensors, std::string& out) {
  absl::StrAppend(&out, "tensors ", tensors.group_of_tensor().size(), " in ",
                  tensors.groups().size(), " groups, ", tensors.replicas(), " replicas\n");
  for (size_t g = 0; g < tensors.groups().size(); ++g) {
    const auto group = static_cast<int32_t>(g);
    const TensorGroup& shape = tensors.groups()[g];
    const Placement& source = tensors.PlacementOf(Side::kSource, group);
    const Placement& destination = tensors.PlacementOf(Side::kDestination, group);
    absl::StrAppend(&out, "  group ", g, ": ", tensors.tensors_in_group(group), " x ",
                    DataTypeName(shape.type), ToString(shape.shape),
                    SentAs(tensors, tensors.conversion_of(group)),
                    tensors.is_scales(group) ? " of scales from " : " from ",
                    ToString(source.layout), " over ", ToString(source.mesh), " to ",
                    ToString(destination.layout), " over ", ToString(destination.mesh), "\n");
  }
}

void AppendClasses(const TensorTable& tensors, const Slicing& slicing, std::string& out) {
  const auto count = static_cast<int64_t>(slicing.classes().size());
  absl::StrAppend(&out, "classes ", count, "\n");
  for (int64_t c = 0; c < std::min(count, kClassesListedMax); ++c) {
    const auto index = static_cast<ClassIndex>(c);
    absl::StrAppend(&out, "  class ", c, ": ", slicing.classes()[c].bytes, " bytes, held by ",
                    DeviceNames(tensors, slicing.holders(index)), ", needed by ",
                    DeviceNames(tensors, slicing.receivers(index)),
                    SentAs(tensors, slicing.classes()[c].conversion), "\n");
  }
  if (count > kClassesListedMax)
    absl::StrAppend(&out, "  and ", count - kClassesListedMax, " more\n");
}

std::string DueText(const DueTime& due) {
  const auto share = [](int32_t parts) { return static_cast<double>(parts) / DueTime::kParts; };
  return absl::StrFormat("%.3f-%.3f", share(due.begin), share(due.end));
}

void AppendRelays(const Plan& plan, int64_t relays_max, std::string& out) {
  const std::vector<DeviceId>& devices = plan.tensors().devices();
  const auto count = static_cast<int64_t>(plan.relays().size());
  absl::StrAppend(&out, "relays ", count, " with ", plan.hops().size(), " hops\n");
  for (int64_t r = 0; r < std::min(count, relays_max); ++r) {
    const Relay& relay = plan.relays()[r];
    absl::StrAppend(&out, "  relay ", r, ": class ", relay.slice_class, " [", relay.begin, ", ",
                    relay.end, ") from ", ToString(devices[relay.root]));
    if (relay.due != DueTime()) absl::StrAppend(&out, " due ", DueText(relay.due));
    out += ":";
    for (const Hop& hop : plan.hops(relay)) {
      absl::StrAppend(&out, " ", ToString(devices[hop.from]), ">", ToString(devices[hop.to]), "#",
                      hop.place);
      if (hop.period != 0) absl::StrAppend(&out, "+", hop.period);
    }
    out += "\n";
  }
  if (count > relays_max) absl::StrAppend(&out, "  and ", count - relays_max, " more\n");
}

void AppendCopies(const Plan& plan, int64_t copies_max, std::string& out) {
  const auto count = static_cast<int64_t>(plan.copies().size());
  absl::StrAppend(&out, "copies ", count, "\n");
  for (int64_t i = 0; i < std::min(count, copies_max); ++i) {
    const LocalCopy& copy = plan.copies()[i];
    absl::StrAppend(&out, "  class ", copy.slice_class, " on ",
                    ToString(plan.tensors().devices()[copy.device]), "\n");
  }
  if (count > copies_max) absl::StrAppend(&out, "  and ", count - copies_max, " more\n");
}

void AppendBroadcastGroups(const Plan& plan, std::string& out) {
  const IdSetList& groups = plan.spec().broadcast_groups;
  if (groups.size() == 0) return;
  absl::StrAppend(&out, "broadcast groups ", groups.size(), "\n");
  for (int32_t i = 0; i < std::min(groups.size(), kGroupsListedMax); ++i) {
    absl::StrAppend(&out, "  ", DeviceNames(plan.tensors(), groups[i]), "\n");
  }
  if (groups.size() > kGroupsListedMax)
    absl::StrAppend(&out, "  and ", groups.size() - kGroupsListedMax, " more\n");
}

void AppendOverGpus(const Plan& plan, std::string& out) {
  const std::vector<DeviceRank>& devices = plan.spec().over_gpus;
  if (devices.empty()) return;
  absl::StrAppend(&out, "received over GPUs by ", DeviceNames(plan.tensors(), devices), "\n");
}

// With the plans of their steps, indented.
void AppendCourses(const Plan& plan, int64_t relays_max, std::string& out) {
  for (size_t c = 0; c < plan.courses().size(); ++c) {
    const Course<Plan>& course = plan.courses()[c];
    absl::StrAppend(&out, "course ", c, ": ", course.steps.size(), " steps of ",
                    course.tensors_of_instance(), " tensors, ", course.instances, " instances in ",
                    course.buffers, " buffers",
                    course.releases_source ? ", releasing the source" : "", "\n");
    for (size_t k = 0; k < course.steps.size(); ++k) {
      const Course<Plan>::Step& step = course.steps[k];
      absl::StrAppend(&out, " step ", k);
      if (step.reduction.has_value()) {
        absl::StrAppend(&out, ", reduced by ", ReductionKindName(step.reduction->kind));
        if (step.reduction->divisor != 1) absl::StrAppend(&out, " / ", step.reduction->divisor);
      }
      if (step.adds_own) out += ", with each device's own summand";
      if (step.collective.has_value()) {
        absl::StrAppend(&out, ", by NCCL's ", StepCollectiveName(*step.collective));
      }
      out += '\n';
      for (const absl::string_view line :
           absl::StrSplit(ToText(*step.move, relays_max), '\n', absl::SkipEmpty())) {
        absl::StrAppend(&out, "  ", line, "\n");
      }
    }
  }
}

// If they are GPUs.
void AppendBroadcasts(const std::vector<BroadcastFigures>& broadcasts, std::string& out) {
  for (size_t i = 0; i < std::min<size_t>(broadcasts.size(), kGroupsListedMax); ++i) {
    const BroadcastFigures& group = broadcasts[i];
    absl::StrAppendFormat(&out, "  GPUs %s: relays %.9g s, broadcasts %.9g%s\n", group.devices,
                          group.relay_seconds, group.broadcast_seconds,
                          group.is_chosen() ? ", chosen" : "");
  }
}

void AppendM2n(const M2nFigures& m2n, std::string& out) {
  if (!m2n.refusal.empty()) return absl::StrAppend(&out, "  NCCL M2N cannot: ", m2n.refusal, "\n");
  absl::StrAppendFormat(&out, "  NCCL M2N %.9g s\n", m2n.seconds);
}

void AppendFigures(const PlanFigures& figures, std::string& out) {
  const Bound& bound = figures.bound;
  absl::StrAppendFormat(&out, "figures\n  strategy %s\n", figures.strategy);
  absl::StrAppendFormat(
      &out, "  bound %.9g s (ingress %.9g, uplink %.9g, rack ingress %.9g, rack uplink %.9g",
      bound.seconds, bound.ingress_seconds, bound.uplink_seconds, bound.rack_ingress_seconds,
      bound.rack_uplink_seconds);
  if (bound.together_seconds > 0) {
    absl::StrAppendFormat(&out, ", together %.9g", bound.together_seconds);
  }
  absl::StrAppend(&out, ")\n");
  for (const PortPrice& port : bound.proof) {
    absl::StrAppendFormat(&out, "    price of %s %s %.9g\n", PortName(port.port), port.name,
                          port.price);
  }
  absl::StrAppendFormat(&out, "  predicted %.9g s%s, depth %d\n", figures.predicted_seconds,
                        figures.assumed_rates ? " at assumed rates" : "", figures.depth);
  absl::StrAppendFormat(&out, "  excess: rounding %.9g s, ", figures.excess.rounding_seconds);
  if (figures.excess.routing_seconds > 0) {
    absl::StrAppendFormat(&out, "routing %.9g, ", figures.excess.routing_seconds);
  }
  absl::StrAppendFormat(&out, "fill %.9g, blocking %s\n", figures.excess.fill_seconds,
                        figures.simulated ? absl::StrFormat("%.9g", figures.excess.blocking_seconds)
                                          : "not simulated");
  absl::StrAppendFormat(&out, "  network %d bytes, least %d; busiest host %s with %d\n",
                        figures.network_bytes, figures.least_network_bytes, figures.busiest_host,
                        figures.busiest_host_bytes);
  AppendBroadcasts(figures.broadcasts, out);
  if (figures.m2n.has_value()) AppendM2n(*figures.m2n, out);
  if (!figures.search.empty()) absl::StrAppendFormat(&out, "  search %s\n", figures.search);
}

}  // namespace

std::string ToText(const Plan& plan, int64_t relays_max) {
  std::string out = absl::StrCat("plan ", plan.id().ToString(), "\n");
  absl::StrAppend(&out, "chunk ", plan.chunk_bytes(), " bytes, periods ", plan.periods(),
                  ", binding ", BindingModeName(plan.binding()),
                  plan.shared_storage() ? ", shared storage" : "",
                  plan.spec().m2n ? ", by NCCL M2N" : "", "\n");
  if (plan.spec().least_run_ns != 0) {
    absl::StrAppendFormat(&out, "no faster than %.9g s\n",
                          static_cast<double>(plan.spec().least_run_ns) * 1e-9);
  }
  AppendTensors(plan.tensors(), out);
  AppendClasses(plan.tensors(), plan.slicing(), out);
  AppendRelays(plan, relays_max, out);
  AppendCopies(plan, relays_max, out);
  AppendBroadcastGroups(plan, out);
  AppendOverGpus(plan, out);
  AppendCourses(plan, relays_max, out);
  AppendFigures(plan.figures(), out);
  return out;
}

}  // namespace crossmesh
