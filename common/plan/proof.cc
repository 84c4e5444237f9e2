#include "common/plan/proof.h"

#include "common/base/status_macros.h"
#include "common/plan/broadcast_groups.h"
#include "common/plan/channel_proof.h"
#include "common/plan/channels.h"
#include "common/plan/delivery_ledger.h"
#include "common/plan/element_boundaries.h"
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

  absl::Status Prove() {
    const size_t classes = slicing_.classes().size();
    ByClass relays = GroupByClass(plan_.relays(), classes);
    ByClass copies = GroupByClass(plan_.copies(), classes);
    for (ClassIndex c = 0; c < static_cast<ClassIndex>(classes); ++c) {
      ledger_.Open(c);
      for (const int32_t i : copies.Of(c)) {
        RETURN_IF_ERROR(ledger_.Copy(plan_.copies()[i].device));
      }
      const std::span<int32_t> of_class = relays.Of(c);
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

// Statement 7.
absl::Status ProveMemory(const Plan& plan, const TileMemory& memory, const ProofLimits& limits,
                         Proof& proof) {
  for (size_t d = 0; d < memory.source_bytes.size(); ++d) {
    const int64_t source = memory.source_bytes[d];
    int64_t destination = memory.destination_bytes[d];
    if (plan.shared_storage()) {
      const bool same = source > 0 && plan.binding() == BindingMode::kInPlace;
      destination *= same ? 0 : plan.binding() == BindingMode::kShadow ? 2 : 1;
    }
    const int64_t total = source + destination + limits.staging_bytes;
    if (total <= proof.peak_device_bytes) continue;
    proof.peak_device_bytes = total;
    proof.peak_device =
        absl::StrCat(ToString(plan.tensors().devices()[d]), ": source ", source, ", destination ",
                     destination, ", staging ", limits.staging_bytes, " bytes");
  }
  if (limits.device_bytes_max > 0 && proof.peak_device_bytes > limits.device_bytes_max) {
    return absl::ResourceExhaustedError(absl::StrCat("memory of device ", proof.peak_device,
                                                     ": expected at most ", limits.device_bytes_max,
                                                     ", found ", proof.peak_device_bytes));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Proof> Prove(const Plan& plan, const ProofLimits& limits) {
  ASSIGN_OR_RETURN(const TileMemory memory, ProveSlicing(plan.tensors(), plan.slicing()));
  if (plan.binding() == BindingMode::kInPlace && plan.shared_storage()) {
    RETURN_IF_ERROR(ProveInPlace(plan.tensors(), memory));
  }
  RETURN_IF_ERROR(DeliveryProver(plan).Prove());
  const Channels channels = ChannelsOf(plan);
  RETURN_IF_ERROR(ProveChannels(plan, channels));
  RETURN_IF_ERROR(ProveBroadcastGroups(plan));

  Proof proof{.classes = static_cast<int64_t>(plan.slicing().classes().size()),
              .relays = static_cast<int64_t>(plan.relays().size()),
              .hops = static_cast<int64_t>(plan.hops().size()),
              .channels = static_cast<int64_t>(channels.ends.size())};
  RETURN_IF_ERROR(ProveMemory(plan, memory, limits, proof));
  for (const int64_t bytes : memory.destination_bytes) proof.destination_bytes += bytes;
  return proof;
}

}  // namespace crossmesh
