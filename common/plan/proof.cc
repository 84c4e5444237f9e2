#include "common/plan/proof.h"

#include "common/base/error_place.h"
#include "common/base/status_macros.h"
#include "common/plan/broadcast_groups.h"
#include "common/plan/channels.h"
#include "common/plan/collective_proof.h"
#include "common/plan/communicator_splits.h"
#include "common/plan/course_tables.h"
#include "common/plan/delivery_ledger.h"
#include "common/plan/element_boundaries.h"
#include "common/plan/m2n_proof.h"
#include "common/plan/media.h"
#include "common/plan/own_summand.h"
#include "common/plan/releasing_memory.h"
#include "common/plan/slicing_proof.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// Between two looks at whether the proof is wanted, so that they cost nothing.
constexpr ClassIndex kClassesUnasked = 256;

// Indices of items grouped by class, in order within a class.
struct ByClass {
  std::vector<int32_t> first;  // [class]
  std::vector<int32_t> items;

  std::span<int32_t> Of(ClassIndex c) {
    return std::span(items).subspan(first[c], first[c + 1] - first[c]);
  }
};

template <typename Item>
ByClass GroupByClass(const std::vector<Item>& items, size_t classes) {
  ByClass by_class{.first = std::vector<int32_t>(classes + 1, 0),
                   .items = std::vector<int32_t>(items.size())};
  // A counting sort: a plan may have millions of relays.
  for (const Item& item : items) ++by_class.first[item.slice_class + 1];
  std::partial_sum(by_class.first.begin(), by_class.first.end(), by_class.first.begin());
  std::vector<int32_t> next(by_class.first);
  for (size_t i = 0; i < items.size(); ++i) {
    by_class.items[next[items[i].slice_class]++] = static_cast<int32_t>(i);
  }
  return by_class;
}

// Statements 2, 3 and 4: relays and copies, class by class.
class DeliveryProver {
 public:
  explicit DeliveryProver(const Plan& plan)
      : plan_(plan),
        slicing_(plan.slicing()),
        boundaries_(plan.tensors(), slicing_),
        ledger_(plan.tensors(), slicing_),
        reached_by_(plan.tensors().devices().size(), -1) {}

  absl::Status Prove(CancelCheck cancelled) {
    const size_t classes = slicing_.classes().size();
    ByClass relays = GroupByClass(plan_.relays(), classes);
    ByClass copies = GroupByClass(plan_.copies(), classes);
    for (ClassIndex c = 0; c < static_cast<ClassIndex>(classes); ++c) {
      if (c % kClassesUnasked == 0) RETURN_IF_ERROR(CheckWanted(cancelled));
      ledger_.Open(c);
      for (const int32_t i : copies.Of(c)) {
        RETURN_IF_ERROR(ledger_.Copy(plan_.copies()[i].device));
      }
      const std::span<int32_t> of_class = relays.Of(c);
      // The ledger takes the bytes of a device in ascending order only.
      std::ranges::sort(of_class, {},
                        [&](int32_t r) { return std::pair(plan_.relays()[r].begin, r); });
      for (const int32_t r : of_class) RETURN_IF_ERROR(ProveRelay(r));
      RETURN_IF_ERROR(ledger_.Close());
    }
    return absl::OkStatus();
  }

 private:
  absl::Status ProveRelay(int32_t r) {
    const Relay& relay = plan_.relays()[r];
    for (const int64_t edge : {relay.begin, relay.end}) {
      if (!boundaries_.IsBoundary(relay.slice_class, edge)) {
        return Error(r, "cut between elements", absl::StrCat("cut inside one, at byte ", edge));
      }
    }
    if (!std::ranges::binary_search(slicing_.holders(relay.slice_class), relay.root)) {
      return Error(r, "a root that holds the class", Name(relay.root));
    }
    // The relay's number marks what it has reached, so nothing is cleared between relays.
    reached_by_[relay.root] = r;
    for (const Hop& hop : plan_.hops(relay)) {
      if (reached_by_[hop.from] != r) {
        return Error(r, "hops from its root or from where an earlier hop went",
                     absl::StrCat("one from ", Name(hop.from), " to ", Name(hop.to)));
      }
      RETURN_IF_ERROR(ledger_.Deliver(r, hop.to, {relay.begin, relay.end}));
      reached_by_[hop.to] = r;
    }
    return absl::OkStatus();
  }

  std::string Name(DeviceRank device) const { return ToString(plan_.tensors().devices()[device]); }

  absl::Status Error(int32_t r, absl::string_view expected, absl::string_view found) const {
    const Relay& relay = plan_.relays()[r];
    return absl::InternalError(absl::StrCat("relay ", r, " of class ", relay.slice_class,
                                            ", bytes [", relay.begin, ", ", relay.end,
                                            "): expected ", expected, ", found ", found));
  }

  const Plan& plan_;
  const Slicing& slicing_;
  const ElementBoundaries boundaries_;
  DeliveryLedger ledger_;
  std::vector<int32_t> reached_by_;  // [device]: the last relay that got there
};

constexpr int32_t kNoHop = -1;

// Statement 5: places in each channel, and that hops cannot wait for each other in a circle. A hop
// waits for the hop of its relay that brings the bytes to where it starts, and for the hop at the
// place before it in its channel. DeliveryProver comes first: every hop starts at the root or at
// the end of an earlier hop of its relay.
class ChannelProver {
 public:
  ChannelProver(const Plan& plan, const Channels& channels)
      : plan_(plan), channels_(channels), relay_of_hop_(plan.hops().size()) {
    for (size_t r = 0; r < plan.relays().size(); ++r) {
      const Relay& relay = plan.relays()[r];
      for (int64_t h = relay.first_hop; h < relay.first_hop + relay.hop_count; ++h) {
        relay_of_hop_[h] = static_cast<int32_t>(r);
      }
    }
  }

  absl::Status Prove() {
    RETURN_IF_ERROR(OrderChannels());
    FindProviders();
    return ProveAcyclic();
  }

 private:
  // Fills in before_ from the places.
  absl::Status OrderChannels() {
    const std::vector<Hop>& hops = plan_.hops();
    std::vector<int32_t> first(channels_.ends.size() + 1, 0);
    for (const ChannelIndex c : channels_.of_hop) ++first[c + 1];
    std::partial_sum(first.begin(), first.end(), first.begin());
    std::vector<int32_t> order(hops.size(), kNoHop);  // hops by channel and place
    for (size_t h = 0; h < hops.size(); ++h) {
      const ChannelIndex c = channels_.of_hop[h];
      const int32_t count = first[c + 1] - first[c];
      if (hops[h].place >= count) {
        return Error(h, absl::StrCat("places below its ", count, " hops"),
                     absl::StrCat("place ", hops[h].place));
      }
      // As many places as hops, each taken once: so every place from 0 on is taken.
      int32_t& at = order[first[c] + hops[h].place];
      if (at != kNoHop) {
        return Error(
            h, "every place once",
            absl::StrCat("place ", hops[h].place, " for relay ", relay_of_hop_[at], " as well"));
      }
      at = static_cast<int32_t>(h);
    }
    before_.assign(hops.size(), kNoHop);
    for (size_t i = 1; i < order.size(); ++i) {
      if (hops[order[i]].place > 0) before_[order[i]] = order[i - 1];
    }
    return absl::OkStatus();
  }

  // Fills in provider_: the hop of the same relay that ends where a hop starts.
  void FindProviders() {
    provider_.assign(plan_.hops().size(), kNoHop);
    std::vector<int32_t> hop_to(plan_.tensors().devices().size(), kNoHop);
    for (const Relay& relay : plan_.relays()) {
      // Hops start at the root or where an earlier hop of the relay went, so what other relays have
      // left in the table is never read.
      hop_to[relay.root] = kNoHop;
      for (int64_t h = relay.first_hop; h < relay.first_hop + relay.hop_count; ++h) {
        provider_[h] = hop_to[plan_.hops()[h].from];
        hop_to[plan_.hops()[h].to] = static_cast<int32_t>(h);
      }
    }
  }

  // Orders where no hop waits for a later one cannot be cyclic; planners mostly make such ones. For
  // others, takes away hops that wait for nothing until none is left.
  absl::Status ProveAcyclic() {
    const auto count = static_cast<int32_t>(plan_.hops().size());
    int32_t hop = 0;
    while (hop < count && before_[hop] < hop && provider_[hop] < hop) ++hop;
    if (hop == count) return absl::OkStatus();

    // The hops that wait for a hop: after_ in its channel, and a list of those in its relay.
    std::vector<int32_t> after(count, kNoHop);
    std::vector<int32_t> first_fed(count, kNoHop);
    std::vector<int32_t> next_fed(count, kNoHop);
    std::vector<int8_t> waits(count, 0);
    std::vector<int32_t> free;
    for (int32_t h = 0; h < count; ++h) {
      if (before_[h] != kNoHop) {
        after[before_[h]] = h;
        ++waits[h];
      }
      if (provider_[h] != kNoHop) {
        next_fed[h] = first_fed[provider_[h]];
        first_fed[provider_[h]] = h;
        ++waits[h];
      }
      if (waits[h] == 0) free.push_back(h);
    }
    for (size_t i = 0; i < free.size(); ++i) {
      const auto release = [&](int32_t h) {
        if (h != kNoHop && --waits[h] == 0) free.push_back(h);
      };
      release(after[free[i]]);
      for (int32_t h = first_fed[free[i]]; h != kNoHop; h = next_fed[h]) release(h);
    }
    if (static_cast<int32_t>(free.size()) == count) return absl::OkStatus();
    return Circle(waits);
  }

  // Follows hops that wait from one to the next until one comes again.
  absl::Status Circle(const std::vector<int8_t>& waits) const {
    int32_t hop = 0;
    while (waits[hop] == 0) ++hop;
    std::vector<bool> seen(waits.size(), false);
    // Every hop that is left waits for another one that is left, so the walk comes round.
    while (!seen[hop]) {
      seen[hop] = true;
      const int32_t before = before_[hop];
      hop = before != kNoHop && waits[before] > 0 ? before : provider_[hop];
    }
    return Error(hop, "an order in which no hop waits for itself",
                 absl::StrCat("a circle of hops through place ", plan_.hops()[hop].place));
  }

  absl::Status Error(size_t hop, absl::string_view expected, absl::string_view found) const {
    const auto [from, to] = channels_.ends[channels_.of_hop[hop]];
    const Relay& relay = plan_.relays()[relay_of_hop_[hop]];
    const std::vector<DeviceId>& devices = plan_.tensors().devices();
    return absl::InternalError(
        absl::StrCat("channel ", ToString(devices[from]), ">", ToString(devices[to]), ", relay ",
                     relay_of_hop_[hop], " of class ", relay.slice_class, ", bytes [", relay.begin,
                     ", ", relay.end, "): expected ", expected, ", found ", found));
  }

  const Plan& plan_;
  const Channels& channels_;
  std::vector<int32_t> relay_of_hop_;
  std::vector<int32_t> before_;    // [hop]: the one at the place before it, or kNoHop
  std::vector<int32_t> provider_;  // [hop]: the one that it forwards, or kNoHop at the root
};

// Statement 9, and what is proven of the courses' steps.
absl::Status ProveSteps(const Plan& plan, std::span<const CourseTables> courses, Proof& proof,
                        CancelCheck cancelled) {
  for (size_t c = 0; c < plan.courses().size(); ++c) {
    const Course<Plan>& course = plan.courses()[c];
    for (size_t k = 0; k < course.steps.size(); ++k) {
      ASSIGN_OR_RETURN(const Proof of_step,
                       At(absl::StrCat("course ", c, ", step ", k),
                          Prove(*course.steps[k].move, ProofLimits(), cancelled)));
      proof.classes += of_step.classes;
      proof.relays += of_step.relays;
      proof.hops += of_step.hops;
      proof.channels += of_step.channels;
    }
  }
  RETURN_IF_ERROR(ProveReleasing(courses, plan.binding(), plan.shared_storage()));
  RETURN_IF_ERROR(ProveOwnSummandsStay(courses, plan.binding(), plan.shared_storage()));
  RETURN_IF_ERROR(ProveCollectives(plan));
  RETURN_IF_ERROR(ProveMedia(plan));
  absl::Status status = ProveCourses(plan.tensors(), courses);
  if (status.ok()) status = ProveSplits(plan.tensors(), courses);
  return status.ok() ? status : absl::InternalError(status.message());
}

// The most that courses, one after the other, have between their steps on a device.
int64_t CourseBytes(std::span<const CourseTables> courses, const DeviceId& device) {
  int64_t bytes = 0;
  for (const CourseTables& course : courses) {
    bytes = std::max(bytes, CourseMemory(course, device).bytes());
  }
  return bytes;
}

// What the proof of memory is about.
struct MemoryOfPlan {
  const Plan& plan;
  const TileFootprint& tiles;
  std::span<const CourseTables> courses;
};

// Statement 7.
absl::Status ProveMemory(const MemoryOfPlan& of, const ProofLimits& limits, Proof& proof) {
  const auto& [plan, memory, courses] = of;
  const bool is_released = ReleasesSource(courses);
  for (size_t d = 0; d < memory.source_bytes.size(); ++d) {
    const int64_t source = memory.source_bytes[d];
    const int64_t destination = memory.destination_bytes[d] *
                                DestinationArenas(plan.binding(), plan.shared_storage(), source);
    const DeviceId& device = plan.tensors().devices()[d];
    const int64_t arrays = CourseBytes(courses, device);
    const int64_t releasing = is_released ? ReleasingPeakBytes(plan.tensors(), courses, device) : 0;
    const int64_t all = releasing > 0 ? releasing : source + destination + arrays;
    const int64_t total = all + limits.staging_bytes;
    if (total <= proof.peak_device_bytes) continue;
    proof.peak_device_bytes = total;
    proof.peak_device =
        absl::StrCat(ToString(device), ": source ", source, ", destination ", destination,
                     arrays == 0 ? "" : absl::StrCat(", between steps ", arrays),
                     releasing > 0 ? absl::StrCat(", together ", releasing) : "", ", staging ",
                     limits.staging_bytes, " bytes");
  }
  if (limits.device_bytes_max > 0 && proof.peak_device_bytes > limits.device_bytes_max) {
    return absl::ResourceExhaustedError(absl::StrCat("memory of device ", proof.peak_device,
                                                     ": expected at most ", limits.device_bytes_max,
                                                     ", found ", proof.peak_device_bytes));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Proof> Prove(const Plan& plan, const ProofLimits& limits, CancelCheck cancelled) {
  ASSIGN_OR_RETURN(const TileFootprint memory, ProveSlicing(plan.tensors(), plan.slicing()));
  if (plan.binding() == BindingMode::kInPlace && plan.shared_storage()) {
    RETURN_IF_ERROR(ProveInPlace(plan.tensors(), memory));
  }
  Proof proof;
  const std::vector<CourseTables> courses(plan.courses().begin(), plan.courses().end());
  if (!plan.has_courses()) {
    RETURN_IF_ERROR(DeliveryProver(plan).Prove(cancelled));
    RETURN_IF_ERROR(CheckWanted(cancelled));
    const Channels channels = ChannelsOf(plan);
    RETURN_IF_ERROR(ChannelProver(plan, channels).Prove());
    RETURN_IF_ERROR(CheckWanted(cancelled));
    RETURN_IF_ERROR(ProveBroadcastGroups(plan));
    RETURN_IF_ERROR(ProveM2n(plan));
    RETURN_IF_ERROR(ProveMedia(plan));
    proof = {.classes = static_cast<int64_t>(plan.slicing().classes().size()),
             .relays = static_cast<int64_t>(plan.relays().size()),
             .hops = static_cast<int64_t>(plan.hops().size()),
             .channels = static_cast<int64_t>(channels.ends.size())};
  } else {
    RETURN_IF_ERROR(ProveSteps(plan, courses, proof, cancelled));
  }
  RETURN_IF_ERROR(ProveMemory({plan, memory, courses}, limits, proof));
  for (const int64_t bytes : memory.destination_bytes) proof.destination_bytes += bytes;
  return proof;
}

}  // namespace crossmesh
