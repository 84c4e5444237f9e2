#pragma once

#include "planner/network/host_network.h"
#include "planner/reshard/published/broadcast_kinds.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace crossmesh {

// When each port is free again after the first broadcasts of an order, what is left to pass it, and
// how soon all that is left can be over. Broadcasts are placed, and taken back last first.
// Thread-compatible. `kinds` must outlive it.
class BroadcastPortTimes {
 public:
  BroadcastPortTimes(std::span<const BroadcastKind> kinds, const HostNetwork& network);

  int64_t left(int64_t kind) const { return left_[kind]; }
  int64_t placed() const { return static_cast<int64_t>(placed_.size()); }

  // Seconds at which the ports of the kind's chain are free, and the sender's.
  double ChainFree(int64_t kind) const;
  double SenderFree(HostRank host) const { return out_[host].free; }

  // The longest time that something which the kind uses is still needed for, in seconds: a reason
  // to place it soon.
  double Urgency(int64_t kind) const;

  // The kind must have one left. Cost: its chain.
  void Place(int64_t kind, const KindSender& sender);
  void TakeBack();

  // No order that goes on from here, with broadcasts that start at `floor_seconds` or later, ends
  // sooner. The latest of: every port, free again, passes what is left that it must pass; and the
  // senders that share what only they can send would share it so as to end together, could it be
  // divided at will. A broadcast whose sender is open counts as from the fastest. Never more than
  // the end of an order (but for rounding), and that end where nothing is left. Cost: hosts, and
  // the hosts of at most kSharesMax sets of senders.
  double LowerBound(double floor_seconds) const;

  static constexpr size_t kSharesMax = 16;

 private:
  struct Port {
    double free = 0;  // seconds
    double left = 0;  // seconds that it must still be used for
    double UsedUntil(double floor) const { return left > 0 ? std::max(free, floor) + left : free; }
  };
  // What only these hosts can send. The work of a broadcast is the least, over its senders, of its
  // seconds there times the sender's rate.
  struct Share {
    std::vector<HostRank> hosts;  // ascending
    double work_left = 0;         // bytes
    double rate = 0;              // bytes per second, of all hosts
  };
  struct Placed {
    int64_t kind;
    size_t undo;  // where its changes begin
  };

  void AddShares();
  void CountAll();
  // `visit` of every port that a chain occupies besides the sender's.
  template <typename Visit>
  void ForEachChainPort(int64_t kind, Visit visit);
  double EndOf(const Share& share, double floor) const;
  void Set(double& value, double to) {
    undo_.push_back({&value, value});
    value = to;
  }

  const std::span<const BroadcastKind> kinds_;
  std::vector<double> rate_;                     // out, by host
  std::vector<double> work_;                     // by kind
  std::vector<std::vector<int32_t>> shares_of_;  // by kind
  std::vector<int64_t> left_;                    // by kind
  std::vector<Port> out_;                        // by host
  std::vector<Port> in_;
  std::vector<Share> shares_;
  std::vector<Placed> placed_;
  std::vector<std::pair<double*, double>> undo_;  // former values
};

}  // namespace crossmesh
