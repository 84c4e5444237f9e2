#include "common/plan/plan.h"

#include "common/base/digest_builder.h"
#include "common/base/status_macros.h"
#include "common/plan/course.h"
#include "common/plan/course_digest.h"

#include <algorithm>
#include <array>
#include <iterator>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

absl::Status BadPlan(absl::string_view object, absl::string_view expected, int64_t found) {
  return absl::InternalError(absl::StrCat(object, ": expected ", expected, ", found ", found));
}

absl::Status CheckCount(absl::string_view object, int64_t count, int64_t most) {
  if (count <= most) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat(object, " of a plan: expected at most ", most, ", found ", count));
}

}  // namespace

absl::StatusOr<Plan> Plan::Create(Spec spec) {
  Plan plan(std::move(spec));
  RETURN_IF_ERROR(plan.CheckSettings());
  RETURN_IF_ERROR(plan.CheckRelays());
  RETURN_IF_ERROR(plan.CheckCopies());
  RETURN_IF_ERROR(plan.CheckBroadcastGroups());
  RETURN_IF_ERROR(plan.CheckOverGpus());
  RETURN_IF_ERROR(plan.CheckCourses());
  plan.id_ = plan.ComputeId();
  return plan;
}

Plan Plan::WithPrediction(double seconds) && {
  PlanFigures& figures = spec_.figures;
  figures.excess.blocking_seconds = std::max(0.0, seconds - figures.predicted_seconds);
  figures.predicted_seconds = seconds;
  figures.simulated = true;
  return std::move(*this);
}

absl::Status Plan::CheckSettings() const {
  if (spec_.tensors == nullptr || spec_.slicing == nullptr) {
    return absl::InternalError("plan: expected tensors and a slicing, found none");
  }
  if (spec_.slicing->grids() != static_cast<int32_t>(tensors().groups().size())) {
    return BadPlan("slicing", absl::StrCat(tensors().groups().size(), " grids, one a tensor group"),
                   spec_.slicing->grids());
  }
  if (spec_.chunk_bytes <= 0 || spec_.chunk_bytes % kLeafBytes != 0) {
    return BadPlan("chunk", absl::StrCat("a positive multiple of ", kLeafBytes, " bytes"),
                   spec_.chunk_bytes);
  }
  if (spec_.periods < 0) return BadPlan("periods", "0 or more", spec_.periods);
  if (spec_.least_run_ns < 0) return BadPlan("least run", "0 or more", spec_.least_run_ns);
  RETURN_IF_ERROR(CheckCount("relays", std::ssize(spec_.relays), kRelaysMax));
  RETURN_IF_ERROR(CheckCount("hops", std::ssize(spec_.hops), kHopsMax));
  return CheckCount("copies", std::ssize(spec_.copies), kCopiesMax);
}

absl::Status Plan::CheckRelays() const {
  const size_t devices = tensors().devices().size();
  // Proof and parts walk the hops relay by relay: each must be in exactly one.
  std::vector<bool> used(spec_.hops.size(), false);
  for (size_t r = 0; r < spec_.relays.size(); ++r) {
    const Relay& relay = spec_.relays[r];
    const auto bad = [&](absl::string_view what, absl::string_view expected, int64_t found) {
      return BadPlan(absl::StrCat(what, " of relay ", r), expected, found);
    };
    if (!IsIndexOf(relay.slice_class, slicing().classes().size())) {
      return bad("class", absl::StrCat("below ", slicing().classes().size()), relay.slice_class);
    }
    const int64_t bytes = slicing().classes()[relay.slice_class].bytes;
    if (!IsIndexOf(relay.root, devices)) {
      return bad("root", absl::StrCat("a device below ", devices), relay.root);
    }
    if (relay.begin < 0 || relay.begin >= relay.end) {
      return bad("first byte", absl::StrCat("from 0 to below ", relay.end), relay.begin);
    }
    if (relay.end > bytes) {
      return bad("end", absl::StrCat("at most the class's ", bytes, " bytes"), relay.end);
    }
    if (!relay.due.valid()) {
      return bad("due time", "an interval of its plan's run", relay.due.begin);
    }
    if (relay.hop_count <= 0 || relay.first_hop < 0 ||
        relay.first_hop > static_cast<int64_t>(spec_.hops.size()) - relay.hop_count) {
      return bad("hops", absl::StrCat("at least one, within ", spec_.hops.size()), relay.first_hop);
    }
    for (int64_t h = relay.first_hop; h < relay.first_hop + relay.hop_count; ++h) {
      const Hop& hop = spec_.hops[h];
      if (used[h]) return bad("hop", "one of no other relay", h);
      used[h] = true;
      if (!IsIndexOf(hop.from, devices)) return bad("sender", "a device of the plan", hop.from);
      if (!IsIndexOf(hop.to, devices)) return bad("receiver", "a device of the plan", hop.to);
      if (hop.from == hop.to) return bad("receiver", "another than the sender", hop.to);
      if (hop.place < 0) return bad("place", "0 or more", hop.place);
      if (hop.period < 0) return bad("period", "0 or more", hop.period);
    }
  }
  for (size_t h = 0; h < used.size(); ++h) {
    if (!used[h]) return BadPlan("hops", "each in one relay", static_cast<int64_t>(h));
  }
  return absl::OkStatus();
}

absl::Status Plan::CheckCopies() const {
  for (size_t i = 0; i < spec_.copies.size(); ++i) {
    const LocalCopy& copy = spec_.copies[i];
    if (!IsIndexOf(copy.slice_class, slicing().classes().size())) {
      return BadPlan(absl::StrCat("class of copy ", i),
                     absl::StrCat("below ", slicing().classes().size()), copy.slice_class);
    }
    if (!IsIndexOf(copy.device, tensors().devices().size())) {
      return BadPlan(absl::StrCat("device of copy ", i), "a device of the plan", copy.device);
    }
  }
  return absl::OkStatus();
}

absl::Status Plan::CheckBroadcastGroups() const {
  for (int32_t i = 0; i < spec_.broadcast_groups.size(); ++i) {
    DeviceRank last = -1;
    for (const DeviceRank device : spec_.broadcast_groups[i]) {
      if (device <= last || !IsIndexOf(device, tensors().devices().size())) {
        return BadPlan(absl::StrCat("broadcast group ", i), "ascending devices of the plan",
                       device);
      }
      last = device;
    }
  }
  return absl::OkStatus();
}

absl::Status Plan::CheckOverGpus() const {
  DeviceRank last = -1;
  for (const DeviceRank device : spec_.over_gpus) {
    if (device <= last || !IsIndexOf(device, tensors().devices().size())) {
      return BadPlan("receivers over GPUs", "ascending devices of the plan", device);
    }
    last = device;
  }
  return absl::OkStatus();
}

const std::vector<Course<Plan>>& Plan::courses() const {
  static const std::vector<Course<Plan>>& none = *new std::vector<Course<Plan>>();
  return has_courses() ? *spec_.courses : none;
}

absl::Status Plan::CheckCourses() const {
  if (!has_courses()) return absl::OkStatus();
  if (!spec_.relays.empty() || !spec_.copies.empty()) {
    return BadPlan("relays and copies beside courses", "none",
                   std::ssize(spec_.relays) + std::ssize(spec_.copies));
  }
  for (const Course<Plan>& course : courses()) {
    for (const Course<Plan>::Step& step : course.steps) {
      if (step.move == nullptr || step.move->has_courses()) {
        return absl::InternalError("course: expected steps that are plans without courses");
      }
    }
  }
  return absl::OkStatus();
}

// The classes follow from the tensors, so their numbers stand for them.
Digest Plan::ComputeId() const {
  DigestBuilder builder;
  builder.AddText("crossmesh plan 3");
  builder.AddDigest(tensors().digest());
  builder.AddInts(spec_.chunk_bytes, spec_.periods, spec_.least_run_ns, spec_.binding,
                  spec_.shared_storage);
  builder.AddInt(static_cast<int64_t>(spec_.relays.size()));
  for (const Relay& relay : spec_.relays) {
    builder.AddInts(relay.slice_class, relay.root, relay.begin, relay.end, relay.due.begin,
                    relay.due.end, relay.hop_count);
    for (const Hop& hop : hops(relay)) builder.AddInts(hop.from, hop.to, hop.place, hop.period);
  }
  builder.AddInt(static_cast<int64_t>(spec_.copies.size()));
  for (const LocalCopy& copy : spec_.copies) builder.AddInts(copy.slice_class, copy.device);
  builder.AddInt(spec_.broadcast_groups.size());
  for (int32_t i = 0; i < spec_.broadcast_groups.size(); ++i) {
    builder.AddInt(static_cast<int64_t>(spec_.broadcast_groups[i].size()));
    for (const DeviceRank device : spec_.broadcast_groups[i]) builder.AddInt(device);
  }
  // So that all other plans keep the id that they had before there were these.
  if (spec_.m2n) builder.AddText("m2n");
  if (!spec_.over_gpus.empty()) {
    builder.AddText("over gpus");
    builder.AddBytes(std::as_bytes(std::span(spec_.over_gpus)));
  }
  AddCourses(courses(), [](const Plan& move) { return move.id(); }, builder);
  return builder.Finish();
}

int64_t RelayChunks(int64_t relay_bytes, const DueTime& due, int64_t chunk_bytes, int32_t periods) {
  const int64_t parts = int64_t{periods} * (due.end - due.begin);
  const int64_t share = (parts + DueTime::kParts - 1) / DueTime::kParts;
  const int64_t most = Plan::LeavesOf(relay_bytes);
  return std::max((relay_bytes + chunk_bytes - 1) / chunk_bytes, std::min(share, most));
}

absl::string_view PortName(PortPrice::Port port) {
  constexpr std::array<absl::string_view, 6> kNames = {"host_out",  "host_in", "rack_up",
                                                       "rack_down", "gpu_out", "gpu_in"};
  return kNames[static_cast<size_t>(port)];
}

absl::string_view BindingModeName(BindingMode mode) {
  return mode == BindingMode::kShadow ? "shadow" : "in_place";
}

}  // namespace crossmesh
