#pragma once

#include <array>
#include <cstdint>
#include <ostream>

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// How the bytes of a request are routed. All but kRelay are the published ones, to compare with.
enum class Strategy : uint8_t {
  kRelay,
  kSendRecv,
  kLocalAllGather,
  kGlobalAllGather,
  kBroadcastNaive,
  kBroadcastSize,
  kBroadcastGreedy,
  kBroadcastSearch,
  kM2n,           // NVIDIA's own, between GPUs alone
  kRedistribute,  // inside one mesh, by several steps, with reductions
};

// That any devices can run, from any mesh to any other.
inline constexpr std::array<Strategy, 8> kAllStrategies = {
    Strategy::kRelay,           Strategy::kSendRecv,        Strategy::kLocalAllGather,
    Strategy::kGlobalAllGather, Strategy::kBroadcastNaive,  Strategy::kBroadcastSize,
    Strategy::kBroadcastGreedy, Strategy::kBroadcastSearch,
};

// "relay", "send_recv", "local_all_gather", "global_all_gather", "broadcast_naive",
// "broadcast_size", "broadcast_greedy", "broadcast_search", "m2n", "redistribute".
absl::string_view StrategyName(Strategy strategy);

// InvalidArgument for any other name; the message lists them.
absl::StatusOr<Strategy> ParseStrategy(absl::string_view name);

inline std::ostream& operator<<(std::ostream& out, Strategy strategy) {
  return out << StrategyName(strategy);
}

}  // namespace crossmesh
