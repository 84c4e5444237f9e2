#include "common/plan/worker_part.h"

#include "common/base/digest_builder.h"
#include "common/base/status_macros.h"
#include "common/plan/course.h"
#include "common/plan/course_digest.h"

#include <algorithm>
#include <tuple>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

absl::Status BadPart(absl::string_view object, absl::string_view expected, int64_t found) {
  return absl::InvalidArgumentError(
      absl::StrCat("worker's part, ", object, ": expected ", expected, ", found ", found));
}

// Ascending ranks of the table's devices.
absl::Status CheckSet(absl::string_view object, std::span<const DeviceRank> ranks,
                      const TensorTable& tensors) {
  DeviceRank last = -1;
  for (const DeviceRank rank : ranks) {
    if (rank <= last || !IsIndexOf(rank, tensors.devices().size())) {
      return BadPart(object,
                     absl::StrCat("ascending device ranks below ", tensors.devices().size()), rank);
    }
    last = rank;
  }
  return absl::OkStatus();
}

using RelayAndHop = std::pair<int64_t, int64_t>;

Digest DigestOfOrder(const WorkerPart::Spec& spec, std::span<const RelayAndHop> order) {
  DigestBuilder builder;
  builder.AddDigest(spec.plan);
  for (const auto& [r, h] : order) {
    const WorkerPart::PartRelay& relay = spec.relays[r];
    builder.AddInts(relay.relay, relay.begin, relay.end, relay.due.begin, relay.due.end,
                    spec.hops[h].place);
  }
  return builder.Finish();
}

}  // namespace

absl::StatusOr<WorkerPart> WorkerPart::Create(Spec spec) {
  WorkerPart part(std::move(spec));
  if (part.spec_.tensors == nullptr) {
    return absl::InvalidArgumentError("worker's part: expected tensors, found none");
  }
  RETURN_IF_ERROR(part.CheckDevices());
  RETURN_IF_ERROR(part.CheckClasses());
  RETURN_IF_ERROR(part.CheckRelays());
  RETURN_IF_ERROR(part.CheckCopies());
  RETURN_IF_ERROR(part.CheckBroadcastGroups());
  RETURN_IF_ERROR(part.CheckOverGpus());
  RETURN_IF_ERROR(part.CheckCourses());
  part.digest_ = part.ComputeDigest();
  return part;
}

absl::Status WorkerPart::CheckDevices() const {
  RETURN_IF_ERROR(CheckSet("devices", spec_.devices, tensors()));
  if (spec_.chunk_bytes <= 0 || spec_.chunk_bytes % Plan::kLeafBytes != 0) {
    return BadPart("chunk", absl::StrCat("a positive multiple of ", Plan::kLeafBytes, " bytes"),
                   spec_.chunk_bytes);
  }
  if (spec_.periods < 0) return BadPart("periods", "0 or more", spec_.periods);
  if (spec_.least_run_ns < 0) return BadPart("least run", "0 or more", spec_.least_run_ns);
  return absl::OkStatus();
}

absl::Status WorkerPart::CheckClasses() const {
  for (int32_t set = 0; set < spec_.device_sets.size(); ++set) {
    RETURN_IF_ERROR(CheckSet("device set", spec_.device_sets[set], tensors()));
  }
  for (const ClassSets& sets : spec_.class_sets) {
    for (const int32_t set : {sets.holders, sets.receivers}) {
      if (IsIndexOf(set, spec_.device_sets.size())) continue;
      return BadPart("class", absl::StrCat("a device set below ", spec_.device_sets.size()), set);
    }
    if (sets.conversion != kNoConversion &&
        !IsIndexOf(sets.conversion, tensors().conversions().size())) {
      return BadPart("conversion of a class",
                     absl::StrCat("none or one below ", tensors().conversions().size()),
                     sets.conversion);
    }
  }
  return absl::OkStatus();
}

absl::Status WorkerPart::CheckRelays() const {
  const size_t devices = tensors().devices().size();
  const auto is_mine = [&](DeviceRank device) {
    return std::ranges::binary_search(spec_.devices, device);
  };
  int64_t next_hop = 0;
  int64_t last_relay = -1;
  for (const PartRelay& relay : spec_.relays) {
    const auto bad = [&](absl::string_view what, absl::string_view expected, int64_t found) {
      return BadPart(absl::StrCat(what, " of relay ", relay.relay), expected, found);
    };
    if (relay.relay <= last_relay || relay.relay >= Plan::kRelaysMax) {
      return bad("index", absl::StrCat("above ", last_relay, " and below ", Plan::kRelaysMax),
                 relay.relay);
    }
    last_relay = relay.relay;
    if (!IsIndexOf(relay.class_sets, spec_.class_sets.size())) {
      return bad("class", absl::StrCat("below ", spec_.class_sets.size()), relay.class_sets);
    }
    if (!IsIndexOf(relay.root, devices)) return bad("root", "a device of the plan", relay.root);
    if (relay.begin < 0 || relay.begin >= relay.end) {
      return bad("first byte", absl::StrCat("from 0 to below ", relay.end), relay.begin);
    }
    if (!relay.due.valid()) {
      return bad("due time", "an interval of its plan's run", relay.due.begin);
    }
    if (relay.first_hop != next_hop || relay.hop_count <= 0 ||
        relay.hop_count > static_cast<int64_t>(spec_.hops.size()) - next_hop) {
      return bad("hops",
                 absl::StrCat("at least one, from ", next_hop, " to at most ", spec_.hops.size()),
                 relay.first_hop);
    }
    next_hop += relay.hop_count;
    for (int64_t h = relay.first_hop; h < next_hop; ++h) {
      const PartHop& hop = spec_.hops[h];
      if (!IsIndexOf(hop.from, devices)) return bad("sender", "a device of the plan", hop.from);
      if (!IsIndexOf(hop.to, devices)) return bad("receiver", "a device of the plan", hop.to);
      if (hop.from == hop.to) return bad("receiver", "another than the sender", hop.to);
      if (!is_mine(hop.from) && !is_mine(hop.to)) {
        return bad("hop", "one from or to the worker's devices, not from device", hop.from);
      }
      if (hop.channel < 0) return bad("channel", "0 or more", hop.channel);
      if (hop.place < 0) return bad("place", "0 or more", hop.place);
      if (hop.period < 0) return bad("period", "0 or more", hop.period);
    }
  }
  if (next_hop != static_cast<int64_t>(spec_.hops.size())) {
    return BadPart("hops", absl::StrCat("the ", next_hop, " of its relays"),
                   static_cast<int64_t>(spec_.hops.size()));
  }
  return absl::OkStatus();
}

absl::Status WorkerPart::CheckCopies() const {
  for (const PartCopy& copy : spec_.copies) {
    if (!IsIndexOf(copy.class_sets, spec_.class_sets.size())) {
      return BadPart("class of a copy", absl::StrCat("below ", spec_.class_sets.size()),
                     copy.class_sets);
    }
    if (!std::ranges::binary_search(spec_.devices, copy.device)) {
      return BadPart("device of a copy", "one of the worker's", copy.device);
    }
  }
  return absl::OkStatus();
}

absl::Status WorkerPart::CheckBroadcastGroups() const {
  for (const int32_t set : spec_.broadcast_groups) {
    if (IsIndexOf(set, spec_.device_sets.size())) continue;
    return BadPart("broadcast group", absl::StrCat("a device set below ", spec_.device_sets.size()),
                   set);
  }
  return absl::OkStatus();
}

absl::Status WorkerPart::CheckOverGpus() const {
  RETURN_IF_ERROR(CheckSet("receivers over GPUs", spec_.over_gpus, tensors()));
  if (spec_.medium == Medium::kAny || !spec_.over_gpus.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "worker's part, medium: expected none where no device receives over GPUs, found one");
}

const std::vector<Course<WorkerPart>>& WorkerPart::courses() const {
  static const std::vector<Course<WorkerPart>>& none = *new std::vector<Course<WorkerPart>>();
  return has_courses() ? *spec_.courses : none;
}

absl::Status WorkerPart::CheckCourses() const {
  if (!has_courses()) return absl::OkStatus();
  if (!spec_.relays.empty() || !spec_.copies.empty()) {
    return BadPart("relays and copies beside courses", "none",
                   std::ssize(spec_.relays) + std::ssize(spec_.copies));
  }
  for (const Course<WorkerPart>& course : courses()) {
    for (const Course<WorkerPart>::Step& step : course.steps) {
      if (step.move != nullptr && !step.move->has_courses()) continue;
      return absl::InvalidArgumentError(
          "worker's part, course: expected steps that are parts without courses");
    }
  }
  return absl::OkStatus();
}

Digest WorkerPart::ComputeDigest() const {
  DigestBuilder builder;
  builder.AddText("crossmesh part 3");
  builder.AddDigest(spec_.plan);
  builder.AddDigest(tensors().digest());
  builder.AddInts(spec_.chunk_bytes, spec_.periods, spec_.least_run_ns, spec_.binding,
                  spec_.shared_storage);
  builder.AddInt(static_cast<int64_t>(spec_.devices.size()));
  builder.AddBytes(std::as_bytes(std::span(spec_.devices)));
  builder.AddInt(spec_.device_sets.size());
  for (int32_t set = 0; set < spec_.device_sets.size(); ++set) {
    builder.AddInt(static_cast<int64_t>(spec_.device_sets[set].size()));
  }
  builder.AddBytes(std::as_bytes(spec_.device_sets.ids()));
  builder.AddInt(static_cast<int64_t>(spec_.class_sets.size()));
  for (const ClassSets& sets : spec_.class_sets) {
    builder.AddInts(sets.holders, sets.receivers);
    // So that parts without conversions keep the digest that they had before there were any.
    if (!tensors().conversions().empty()) builder.AddInt(sets.conversion);
  }
  builder.AddInt(static_cast<int64_t>(spec_.relays.size()));
  for (const PartRelay& relay : spec_.relays) {
    builder.AddInts(relay.relay, relay.class_sets, relay.root, relay.begin, relay.end,
                    relay.due.begin, relay.due.end, relay.hop_count);
  }
  for (const PartHop& hop : spec_.hops) {
    builder.AddInts(hop.from, hop.to, hop.channel, hop.place, hop.period);
  }
  builder.AddInt(static_cast<int64_t>(spec_.copies.size()));
  for (const PartCopy& copy : spec_.copies) builder.AddInts(copy.class_sets, copy.device);
  builder.AddInt(static_cast<int64_t>(spec_.broadcast_groups.size()));
  for (const int32_t set : spec_.broadcast_groups) builder.AddInt(set);
  // As in the plan's id.
  if (spec_.m2n) builder.AddText("m2n");
  if (!spec_.over_gpus.empty()) {
    builder.AddText("over gpus");
    builder.AddBytes(std::as_bytes(std::span(spec_.over_gpus)));
    builder.AddInt(static_cast<int64_t>(spec_.medium));
  }
  AddCourses(courses(), [](const WorkerPart& move) { return move.digest(); }, builder);
  return builder.Finish();
}

bool WorkerPart::IsOverGpus(DeviceRank device) const {
  return std::ranges::binary_search(spec_.over_gpus, device);
}

bool WorkerPart::Serves(DeviceRank device) const {
  return spec_.medium == Medium::kAny || (spec_.medium == Medium::kGpus) == IsOverGpus(device);
}

std::span<const DeviceRank> WorkerPart::holders(int32_t class_sets) const {
  return spec_.device_sets[spec_.class_sets[class_sets].holders];
}

std::span<const DeviceRank> WorkerPart::receivers(int32_t class_sets) const {
  return spec_.device_sets[spec_.class_sets[class_sets].receivers];
}

std::span<const DeviceRank> WorkerPart::BroadcastGroupOf(DeviceRank device) const {
  for (const int32_t set : spec_.broadcast_groups) {
    const std::span<const DeviceRank> group = spec_.device_sets[set];
    if (std::ranges::binary_search(group, device)) return group;
  }
  return {};
}

ClassIndex WorkerPart::ClassIn(const Slicing& slicing, int32_t class_sets) const {
  return slicing.Find(holders(class_sets), receivers(class_sets),
                      spec_.class_sets[class_sets].conversion);
}

namespace {

// The (relay, hop) pairs of all hops, by channel and place.
std::vector<RelayAndHop> HopsByPlace(const WorkerPart::Spec& spec) {
  std::vector<RelayAndHop> order;
  order.reserve(spec.hops.size());
  for (size_t r = 0; r < spec.relays.size(); ++r) {
    const WorkerPart::PartRelay& relay = spec.relays[r];
    for (int64_t h = relay.first_hop; h < relay.first_hop + relay.hop_count; ++h) {
      order.emplace_back(r, h);
    }
  }
  // The hop's own number comes last: so a bad part, with two hops at one place, has one digest too.
  std::ranges::sort(order, {}, [&](const RelayAndHop& entry) {
    const WorkerPart::PartHop& hop = spec.hops[entry.second];
    return std::tuple(hop.channel, hop.place, entry.second);
  });
  return order;
}

}  // namespace

std::vector<std::pair<ChannelIndex, Digest>> ChannelOrderDigests(const WorkerPart& part) {
  const WorkerPart::Spec& spec = part.spec();
  const std::vector<RelayAndHop> order = HopsByPlace(spec);
  std::vector<std::pair<ChannelIndex, Digest>> digests;
  for (size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    const ChannelIndex channel = spec.hops[order[begin].second].channel;
    while (end < order.size() && spec.hops[order[end].second].channel == channel) ++end;
    digests.emplace_back(channel,
                         DigestOfOrder(spec, std::span(order).subspan(begin, end - begin)));
  }
  return digests;
}

}  // namespace crossmesh
