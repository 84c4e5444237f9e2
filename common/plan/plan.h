#pragma once

#include "common/base/digest.h"
#include "common/plan/id_sets.h"
#include "common/plan/slicing.h"
#include "common/plan/tensor_table.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

template <typename Move>
struct Course;

// What a plan may do to memory that already holds something.
enum class BindingMode : uint8_t {
  kShadow,   // received into a second arena, which takes the first one's place at commit
  kInPlace,  // received into the one arena, which is DIRTY from the first byte to the commit
};

// One step of a relay's route: `from` has every byte before `to` has it.
struct Hop {
  DeviceRank from = 0;
  DeviceRank to = 0;
  int32_t place = 0;   // position of the relay in the list of the channel from -> to: 0, 1, ...
  int32_t period = 0;  // periods to stay behind the root; counted, never a clock
};

// When a relay is due: its bytes evenly from `begin` to `end`, in parts of the plan's run. What
// waits for a channel goes in the order in which it is due, then in that of the channel's list. An
// order and a pace relative to others, never a clock.
//
// Example: two relays that share a channel are both due from 0 to kParts, one of 2 MiB and one of 6
// MiB: every fourth byte is of the first one until both end. Were both due at 0, as by default, the
// second would begin when the first is through.
struct DueTime {
  static constexpr int32_t kParts = int32_t{1} << 30;
  int32_t begin = 0;
  int32_t end = 0;

  // Of a relay's chunk, counted from 0; chunk == chunks: of what follows the last one.
  int32_t Of(int64_t chunk, int64_t chunks) const {
    return begin + static_cast<int32_t>(int64_t{end - begin} * chunk / chunks);
  }
  bool valid() const { return 0 <= begin && begin <= end && end <= kParts; }
  friend bool operator==(const DueTime&, const DueTime&) = default;
};

// A byte range [begin, end) of a class going from `root`, a holder, down the tree of its hops. A
// hop's `from` is the root or the `to` of an earlier hop of the relay.
struct Relay {
  ClassIndex slice_class = 0;
  DeviceRank root = 0;
  int64_t begin = 0;
  int64_t end = 0;
  int64_t first_hop = 0;  // hops[first_hop .. first_hop + hop_count)
  int32_t hop_count = 0;
  DueTime due;
};

// A device that needs a class and holds it: its bytes go from its source tiles to its destination
// tiles. Nothing moves where both are the same memory.
struct LocalCopy {
  ClassIndex slice_class = 0;
  DeviceRank device = 0;
};

// A port, and its price in the proof of a bound: any plan needs at least (bytes that any delivery
// must buy at these prices) / (sum of price times rate).
struct PortPrice {
  // kGpuOut, kGpuIn: of a GPU by itself, its NIC, or NIC and links together.
  enum class Port : uint8_t { kHostOut, kHostIn, kRackUp, kRackDown, kGpuOut, kGpuIn };
  Port port = Port::kHostOut;
  std::string name;  // of host, rack or device
  double price = 0;
};

// The least time of any plan under the network model of the design (fluid; a host carries a class
// only if it holds or needs it).
struct Bound {
  double seconds = 0;
  double ingress_seconds = 0;
  double uplink_seconds = 0;
  double rack_ingress_seconds = 0;
  double rack_uplink_seconds = 0;
  double together_seconds = 0;   // of hosts and racks, where that is more than each of the above
  std::vector<PortPrice> proof;  // empty when nothing crosses a NIC
};

// What a plan is predicted to take beyond its bound.
struct Excess {
  double rounding_seconds = 0;  // its busiest port has more to do than the bound says
  double routing_seconds = 0;   // with racks: not by rounding, but by the choice of routes
  double fill_seconds = 0;      // a route's last byte arrives so far behind its first hop
  double blocking_seconds = 0;  // what is due waits for other chunks at a port; only simulated
};

// What a broadcast group (broadcast_groups.h) of GPUs is predicted to take by its relays, and by
// broadcasts. The group uses whichever takes less.
struct BroadcastFigures {
  std::string devices;  // in text form
  double relay_seconds = 0;
  double broadcast_seconds = 0;

  bool is_chosen() const { return broadcast_seconds < relay_seconds; }
};

// What NCCL M2N would make of a request between GPUs (m2n_transfer.h).
struct M2nFigures {
  double seconds = 0;      // predicted, of all tensors
  std::string refusal;     // why it cannot move all of them: of the first that it cannot
  std::string not_chosen;  // why it does not, although it can
};

struct PlanFigures {
  std::string strategy;  // e.g. "relay"
  Bound bound;
  double predicted_seconds = 0;
  bool simulated = false;  // chunk by chunk; otherwise the bound, rounding and fill
  Excess excess;
  bool assumed_rates = false;  // some host's rate was not described
  int32_t depth = 0;           // hops between hosts on the deepest route
  int64_t network_bytes = 0;   // planned through all NICs, counted once, at the sender
  int64_t least_network_bytes = 0;
  int64_t busiest_host_bytes = 0;  // through one host's NICs in one direction
  std::string busiest_host;
  std::string search;  // what the strategy says of its search, e.g. "3 flows, 2 cuts"
  std::vector<BroadcastFigures>
      broadcasts;                 // of all groups that there are, if they were looked for
  std::optional<M2nFigures> m2n;  // nothing where some device is not a GPU
};

// An immutable plan: relays and copies over the classes of a table. Symbolic and address-free; a
// pure function of its request. Its id is the digest of everything but the figures.
class Plan {
 public:
  static constexpr int64_t kRelaysMax = int64_t{1} << 21;
  // To plan, to prove and to cut into parts takes a hundred bytes and more of each.
  static constexpr int64_t kHopsMax = int64_t{1} << 24;
  static constexpr int64_t kCopiesMax = int64_t{1} << 24;
  static constexpr int64_t kChunkBytesDefault = int64_t{1} << 20;
  // What a worker's staging takes in one direction. Larger chunks would be refused by every worker.
  static constexpr int64_t kChunkBytesMax = int64_t{1} << 24;
  static constexpr int64_t kLeafBytes = int64_t{1} << 16;
  // Leaves that so many bytes of a chunk are cut into; the last may be shorter.
  static constexpr int64_t LeavesOf(int64_t bytes) { return (bytes + kLeafBytes - 1) / kLeafBytes; }

  struct Spec {
    std::shared_ptr<const TensorTable> tensors;
    std::shared_ptr<const Slicing> slicing;  // of all of `tensors`
    std::vector<Relay> relays;
    std::vector<Hop> hops;
    std::vector<LocalCopy> copies;
    // Ascending devices of each: where they are GPUs, the relays among them go by broadcasts.
    IdSetList broadcast_groups;
    // GPUs have NCCL M2N move all tensors (m2n_transfer.h). A relay then says who tells its
    // receivers the hashes of its bytes.
    bool m2n = false;
    // Of a plan that joins GPUs and host memory, the devices, ascending, that receive and copy over
    // a communicator of GPUs (media.h). All others do by way of host memory.
    std::vector<DeviceRank> over_gpus = {};
    // Where tensors take several steps, or are reduced: all that is moved goes by these, and there
    // are no relays and copies beside them.
    std::shared_ptr<const std::vector<Course<Plan>>> courses = nullptr;
    int64_t chunk_bytes = kChunkBytesDefault;  // the most of a chunk; a multiple of kLeafBytes
    // Chunks of what is due from 0 to the end of the execution: the more, the sooner it is
    // forwarded. What is due a part of the time has as many fewer. 0: as few as chunk_bytes allows.
    int32_t periods = 0;
    // No peer is sent its bytes in less time than this: an operation that leaves room on the NICs
    // to others, or whose streams meet at full ports. 0: as fast as may be.
    int64_t least_run_ns = 0;
    BindingMode binding = BindingMode::kShadow;
    bool shared_storage = false;  // source and destination of a device are one storage
    PlanFigures figures;
  };

  // Checks only that indices are in range and every hop in one relay (Internal otherwise: a
  // planner's bug), and that no limit is passed (ResourceExhausted; planners look before they make
  // so many); what a plan promises is Prove's to check (proof.h). Cost: linear in relays and hops.
  static absl::StatusOr<Plan> Create(Spec spec);

  const TensorTable& tensors() const { return *spec_.tensors; }
  const Slicing& slicing() const { return *spec_.slicing; }
  const std::vector<Relay>& relays() const { return spec_.relays; }
  const std::vector<Hop>& hops() const { return spec_.hops; }
  std::span<const Hop> hops(const Relay& relay) const {
    return std::span(spec_.hops).subspan(relay.first_hop, relay.hop_count);
  }
  const std::vector<LocalCopy>& copies() const { return spec_.copies; }
  bool has_courses() const { return spec_.courses != nullptr; }
  const std::vector<Course<Plan>>& courses() const;
  int64_t chunk_bytes() const { return spec_.chunk_bytes; }
  int32_t periods() const { return spec_.periods; }
  BindingMode binding() const { return spec_.binding; }
  bool shared_storage() const { return spec_.shared_storage; }
  const PlanFigures& figures() const { return spec_.figures; }
  const Spec& spec() const { return spec_; }
  const Digest& id() const { return id_; }

  // The same plan, with what a simulation says of it.
  Plan WithPrediction(double seconds) &&;

 private:
  explicit Plan(Spec spec) : spec_(std::move(spec)) {}
  absl::Status CheckSettings() const;
  absl::Status CheckRelays() const;
  absl::Status CheckCopies() const;
  absl::Status CheckBroadcastGroups() const;
  absl::Status CheckOverGpus() const;
  absl::Status CheckCourses() const;
  Digest ComputeId() const;

  Spec spec_;
  Digest id_;
};

// How many chunks a relay is cut into, but for where tensors begin (chunk_cuts.h): its part of
// `periods`, if that makes none longer than `chunk_bytes` and none shorter than a leaf. Channels
// that share a port, each with as many chunks under way as any other, so share it by the bytes that
// the plan sends over them.
int64_t RelayChunks(int64_t relay_bytes, const DueTime& due, int64_t chunk_bytes, int32_t periods);

absl::string_view BindingModeName(BindingMode mode);  // "shadow", "in_place"
absl::string_view PortName(PortPrice::Port port);     // "host_out", "host_in", "rack_up", ...

// Stable text for people and golden tests: tensors by group, classes, relays with routes, copies,
// figures. `relays_max` bounds the relays listed.
std::string ToText(const Plan& plan, int64_t relays_max = 1000);

}  // namespace crossmesh
