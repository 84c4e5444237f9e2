#pragma once

#include "planner/network/demands.h"
#include "planner/network/fraction.h"
#include "planner/network/max_flow.h"

#include <cstdint>
#include <span>
#include <vector>

#include <absl/numeric/int128.h>

namespace crossmesh {

// How many bytes every place sends of every demand.
struct SendShares {
  static constexpr int64_t kSole = -1;

  absl::int128 unit = 1;  // amounts are bytes times this
  // Demand d's amounts are amounts[first[d] ...): one per holder, then one per receiver, in the
  // order of the sets; kSole: one holder sends all of it to the one receiver, and has no amounts.
  std::vector<int64_t> first;
  std::vector<absl::int128> amounts;
};

// The flow that the uplink term is computed by. A demand with r receivers asks for its bytes from
// its holders (first copies) and for r - 1 times its bytes from holders or receivers, and a place
// supplies at most seconds * rate. First copies of a sole holder are a fixed load and take no part;
// a million demands from one place to one other cost one pass. Keeps references to its arguments.
class UplinkFlow {
 public:
  // Which of several flows to prefer. Both are heuristics: any flow keeps all ports within time.
  enum class Preference {
    kShallow,  // holders send first: short routes
    kChains,   // every receiver forwards once at most, holders only what is left
  };
  // `receiver_order` has a number by place: receivers with lower ones forward first. May be empty.
  UplinkFlow(const Demands& demands, std::span<const int64_t> rates, Preference preference,
             std::span<const int32_t> receiver_order = {});

  // The greatest need of one place by itself, or of all together: no plan is faster.
  Fraction StartSeconds() const;
  // The places for which StartSeconds is needed.
  std::vector<int32_t> StartPlaces() const;

  // True when nothing is left to choose: StartSeconds is enough and Shares needs no Run.
  bool AllFixed() const { return asks_.empty(); }
  // Whether everything can be sent within `seconds` (at least StartSeconds).
  bool Run(const Fraction& seconds);
  // After Run gave false: places that cannot do it among themselves, and what they need at least.
  std::vector<int32_t> CutPlaces() const;
  Fraction CutSeconds() const;
  // After Run gave true.
  SendShares Shares() const;

 private:
  // Copies of one demand that a set of places may send: first copies, or all others.
  struct Ask {
    int64_t demand = 0;
    absl::int128 bytes = 0;
    int32_t node = 0;
    int64_t ask_edge = 0;        // from the source
    int64_t holder_edge = 0;     // to the first holder; those of the others follow
    int64_t receiver_edge = -1;  // to the first receiver in order; -1: only holders may send
  };

  void AddAsk(int64_t demand, bool is_first_copy);
  std::vector<int32_t> InOrder(std::span<const int32_t> receivers) const;
  Fraction NeedOf(int32_t place) const;
  Fraction NeedOfAll() const;

  const Demands& demands_;
  const std::span<const int64_t> rates_;
  const Preference preference_;
  const std::span<const int32_t> receiver_order_;

  MaxFlow graph_;  // nodes: the places, source, sink, then the asks
  int32_t source_ = 0;
  int32_t sink_ = 0;
  std::vector<int64_t> fixed_bytes_;  // that a place sends in any case
  std::vector<bool> takes_part_;      // by place: sends in any case or may send
  std::vector<Ask> asks_;
  std::vector<int64_t> supply_edge_;  // by place: to the sink
  absl::int128 unit_ = 1;             // of the amounts in the graph, set by Run
};

}  // namespace crossmesh
