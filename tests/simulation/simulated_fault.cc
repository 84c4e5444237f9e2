#include "tests/simulation/simulated_fault.h"

#include "tests/simulation/simulated_world.h"

#include <iterator>

#include <absl/strings/str_format.h>

namespace crossmesh {
namespace {

using Kind = SimulatedFault::Kind;

constexpr const char* kNames[] = {
    "kill",    "pause",      "cut one way", "cut",           "swizzle",         "delay",
    "loss",    "flips",      "wall jump",   "drift",         "pause in commit", "pause at order",
    "compact", "power loss", "disk full",   "sync failures", "bit flip"};
static_assert(std::size(kNames) == SimulatedFault::kKinds);

bool NeedsDisk(Kind kind) { return kind >= Kind::kPowerLoss; }
bool NeedsEtcd(Kind kind) { return kind == Kind::kCompact || kind == Kind::kPauseInCommit; }

double AmountOf(Kind kind, SimulatedWorld& dice) {
  switch (kind) {
    case Kind::kDelay:
      return 0.02 + 0.4 * dice.Chance();
    case Kind::kLoss:
      return 0.02 + 0.2 * dice.Chance();
    case Kind::kFlips:
      return 0.05 + 0.3 * dice.Chance();
    case Kind::kWallJump:
      // Clocks that are a day apart forget requests: those of no two nodes are.
      return (dice.Chance() - 0.5) * 79'200;
    case Kind::kDrift:
      return dice.Happens(0.5) ? 0.5 + 0.4 * dice.Chance() : 1.1 + 0.9 * dice.Chance();
    case Kind::kPowerLoss:
      return dice.Pick(12);
    case Kind::kSyncFailures:
      return 1 + dice.Pick(2);
    default:
      return dice.Chance();
  }
}

// Controllers and workers oftener than the rest.
int PickNode(const FaultPlanOptions& options, SimulatedWorld& dice) {
  const double what = dice.Chance();
  if (what < 0.4) return dice.Pick(static_cast<int>(options.controllers));
  if (what < 0.95 || !options.has_etcd) {
    return static_cast<int>(options.controllers) + dice.Pick(static_cast<int>(options.workers));
  }
  return static_cast<int>(options.nodes - 1);  // etcd
}

SimulatedFault MakeFault(const FaultPlanOptions& options, SimulatedWorld& dice) {
  SimulatedFault fault{.kind = static_cast<Kind>(dice.Pick(SimulatedFault::kKinds))};
  while (options.has_etcd ? NeedsDisk(fault.kind) : NeedsEtcd(fault.kind)) {
    fault.kind = static_cast<Kind>(dice.Pick(SimulatedFault::kKinds));
  }
  fault.node = PickNode(options, dice);
  do {
    fault.other = dice.Pick(static_cast<int>(options.nodes));
  } while (fault.other == fault.node);
  if (NeedsDisk(fault.kind)) fault.node = 0;
  const absl::Duration most = dice.Happens(0.2) ? absl::Seconds(30) : absl::Seconds(8);
  fault.length = dice.Between(absl::Milliseconds(50), most);
  // So long that another one leads, or the worker is given up.
  const bool is_pause = fault.kind == Kind::kPauseInCommit || fault.kind == Kind::kPauseAtOrder;
  if (is_pause) fault.length += absl::Seconds(8);
  fault.amount = AmountOf(fault.kind, dice);
  // As under a supervisor: before anybody has noticed.
  const bool is_short = fault.kind == Kind::kKill && fault.amount < 0.5;
  if (is_short) fault.length = absl::Milliseconds(50) + fault.amount * absl::Milliseconds(400);
  return fault;
}

}  // namespace

std::string SimulatedFault::ToString() const {
  return absl::StrFormat("at %.3f s: %s, node %d, other %d, for %.3f s, amount %.3f",
                         absl::ToDoubleSeconds(at), kNames[static_cast<int>(kind)], node, other,
                         absl::ToDoubleSeconds(length), amount);
}

std::vector<SimulatedFault> MakeFaults(const FaultPlanOptions& options) {
  SimulatedWorld dice(options.seed ^ 0x5eedfa017, /*keeps_log=*/false);
  std::vector<SimulatedFault> faults;
  absl::Duration at = dice.Between(absl::Seconds(1), absl::Seconds(10));
  // Some histories are calm, some rough.
  const absl::Duration pause_max = options.every.has_value()
                                       ? 2 * *options.every
                                       : dice.Between(absl::Seconds(4), absl::Seconds(40));
  while (at < options.end) {
    SimulatedFault& fault = faults.emplace_back(MakeFault(options, dice));
    fault.at = at;
    at += dice.Between(absl::Milliseconds(1), pause_max);
  }
  return faults;
}

}  // namespace crossmesh
